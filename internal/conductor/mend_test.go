package conductor_test

import (
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestRestoresOwnersQuota removes the quota of an owner's pod, as systemd does when it reloads its
// configuration. The agent restores its quota, and leaves values that no hook decided.
func TestRestoresOwnersQuota(t *testing.T) {
	t.Parallel()
	for version, unlimited := range map[cgroup.Version]string{cgroup.V1: "-1", cgroup.V2: "max"} {
		mo := newModel(t, version, faults{})
		owner := mo.runPod("LSR", "2-3", "")
		mo.start(mo.create(owner, "db"))
		other := mo.runPod("", "", "")
		tree := &cgroup.Tree{FS: mo.kernel, Version: version}
		quota := lifecycle.Value{Field: lifecycle.CPUQuota, Int: 50_000}
		for _, p := range []*modelPod{owner, other} {
			must(tree.Write(p.CgroupParent[1:], quota))
		}
		mo.con.RepairAll()
		for p, want := range map[*modelPod]string{owner: unlimited, other: "50000"} {
			if got, _, err := tree.ReadBandwidth(p.CgroupParent[1:]); err != nil || got != want {
				t.Errorf("version %v: the quota of %s is %s (%v), want %s", version, p.Name, got, err, want)
			}
		}
	}
}
