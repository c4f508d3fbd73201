package keeper

import (
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestParentCPUs: the CPUs that a pod's cgroup allows. In version 2 an offline CPU comes back by itself and
// limits nothing; version 1 removes it permanently.
func TestParentCPUs(t *testing.T) {
	for _, c := range []struct {
		version      cgroup.Version
		own, off, on string
	}{
		{cgroup.V2, "", "", ""},
		{cgroup.V2, "0-3", "0-2", "0-3"},
		{cgroup.V1, "0-3", "0-2", "0-2"},
	} {
		r := newRig(t, c.version, "pod")
		if c.own != "" {
			if err := r.tree.WriteText("pod", lifecycle.CPUSetCPUs, "", c.own); err != nil {
				t.Fatal(err)
			}
		}
		for _, step := range []struct {
			online bool
			want   string
		}{{false, c.off}, {true, c.on}} {
			if err := r.fake.SetOnline(3, step.online); err != nil {
				t.Fatal(err)
			}
			if got, ok := r.ParentCPUs("pod"); !ok || got != step.want {
				t.Errorf("version %v, set to %q, CPU 3 online: %v: allows %q (%v), want %q", c.version, c.own, step.online, got, ok, step.want)
			}
		}
	}
}
