package doctor

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/config"
)

// TestPeers: peersOf finds the process that is connected to a socket in the kernel's list of sockets.
func TestPeers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got, err := peersOf(path); err != nil || len(got) > 0 {
		t.Errorf("nobody is connected: %v, %v", got, err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	got, err := peersOf(path)
	if err != nil || len(got) != 1 || !strings.HasSuffix(got[0], fmt.Sprintf("(%d)", os.Getpid())) {
		t.Errorf("connected: %v, %v", got, err)
	}
	if other, err := peersOf(path + "x"); err != nil || len(other) > 0 {
		t.Errorf("of another socket: %v, %v", other, err)
	}
}

// TestOtherPlugins: the check names who is connected and what Trimtab cedes, and says how to see what each sets.
func TestOtherPlugins(t *testing.T) {
	dir := t.TempDir()
	n := &nriConfig{host: host{root: dir, owner: owner}, keys: map[string]setting{}}
	c := Check{Name: "other nri plugins"}
	for _, tc := range []struct {
		peers []string
		err   error
		cede  []string
		want  []string
	}{
		{[]string{"topology (12)", "trimtab (7)"}, nil, []string{"cpuset.cpus"}, []string{"connected: topology (12), trimtab (7)", "Trimtab leaves cpuset.cpus to other plugins (nri.cede)"}},
		{[]string{"trimtab (7)"}, nil, nil, []string{"connected: trimtab (7)", "Trimtab leaves nothing to other plugins"}},
		{nil, os.ErrPermission, nil, []string{"which plugins connect by themselves is unknown", "permission denied"}},
	} {
		n.peers = func(string) ([]string, error) { return tc.peers, tc.err }
		got := checkPlugins(c, n, config.NRI{Index: "90", Name: "trimtab", Cede: tc.cede})
		for _, want := range tc.want {
			if !strings.Contains(got.Found, want) {
				t.Errorf("%v: %q lacks %q", tc.peers, got.Found, want)
			}
		}
		if slices.Contains(tc.peers, "topology (12)") && !strings.Contains(got.Do, "trimtab diff") {
			t.Errorf("what to do: %q", got.Do)
		}
	}
}
