package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCaptured: a captured node is a path beside the scenario, and excludes a described machine.
func TestCaptured(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s.yaml")
	const steps = "\nsteps: [{name: a pod, run: [{pod: {namespace: d, name: p, qos: Burstable}, containers: [{name: c}]}]}]\n"
	for node, want := range map[string]string{
		"{captured: n.tar.gz}":                  "",
		"{captured: n.tar.gz, cpus: 4c}":        "the file describes the whole machine",
		"{captured: n.tar.gz, isolated: \"1\"}": "the file describes the whole machine",
		"{cgroup: v2}":                          "trimtab capture",
	} {
		if err := os.WriteFile(file, []byte("name: x\nnode: "+node+steps), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Load(file)
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", node, err, want)
		case err == nil && (s.Node.Captured != filepath.Join(filepath.Dir(file), "n.tar.gz") || !s.Node.HasSpecialProperties()):
			t.Errorf("%s: %q, special: %v", node, s.Node.Captured, s.Node.HasSpecialProperties())
		}
	}
}
