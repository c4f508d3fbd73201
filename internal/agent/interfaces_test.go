package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestInterfaces: the host's network interfaces are those below the configured sysfs. Without that directory, and for
// a node that is described by a text, it is unknown which there are.
func TestInterfaces(t *testing.T) {
	t.Parallel()
	sys := t.TempDir()
	o := Options{Config: config.Config{Paths: config.Paths{Sys: sys}}}
	has := interfaceProbe(o)
	if _, known := has("eth1"); known {
		t.Error("known without class/net")
	}
	dir := filepath.Join(sys, "class/net")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../devices/virtual/net/eth1", filepath.Join(dir, "eth1")); err != nil { // as in sysfs
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"eth1": true, "eth2": false} {
		if got, known := has(name); got != want || !known {
			t.Errorf("%s: %v, known %v", name, got, known)
		}
	}
	if o.Host = (&lifecycle.Host{}); interfaceProbe(o) != nil {
		t.Error("a described node has the interfaces of this host")
	}
}
