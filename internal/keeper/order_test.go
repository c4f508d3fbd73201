package keeper

import (
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

func TestScalarsShrinkFirst(t *testing.T) {
	r := newRig(t, cgroup.V2, "p/a", "p/b")
	r.Apply([]Item{num("p/a", lifecycle.CPUShares, 1024), num("p/b", lifecycle.CPUShares, 1024), num("p", lifecycle.MemoryLimit, 1<<30), num("p/a", lifecycle.MemoryLimit, 1<<29)})
	r.log()
	r.Apply([]Item{
		num("p/a", lifecycle.CPUShares, 2000), num("p/b", lifecycle.CPUShares, 2),
		num("p", lifecycle.MemoryLimit, 1<<20), num("p/a", lifecycle.MemoryLimit, 1<<19),
	})
	want(t, r.log(), "p/b/cpu.weight=1", "p/a/memory.max=524288", "p/memory.max=1048576", "p/a/cpu.weight=77")
}

// TestFirstQuota: a child without a quota gets one above its parent's present quota. In version 1 the
// parent must get its new quota first, whatever the order of the requests.
func TestFirstQuota(t *testing.T) {
	for _, v := range versions {
		r, c := countedRig(t, v)
		r.Apply([]Item{num("p0", lifecycle.CPUQuota, 50_000)})
		out := r.Apply([]Item{num("p0/a", lifecycle.CPUQuota, 100_000), num("p0", lifecycle.CPUQuota, 150_000), num("p0/b", lifecycle.CPUQuota, 20_000)})
		want(t, states(out), "p0/a cpu.quota applied 100000", "p0 cpu.quota applied 150000", "p0/b cpu.quota applied 20000")
		if len(c.refused) > 0 {
			t.Errorf("%v: refused %q", v, c.refused)
		}
		// In the opposite direction the children come first, one without a quota among them.
		out = r.Apply([]Item{num("p0", lifecycle.CPUQuota, 60_000), num("p0/a", lifecycle.CPUQuota, 50_000), num("p0/b", lifecycle.CPUQuota, -1)})
		none := map[cgroup.Version]string{cgroup.V1: "-1", cgroup.V2: "max"}[v]
		want(t, states(out), "p0 cpu.quota applied 60000", "p0/a cpu.quota applied 50000", "p0/b cpu.quota applied "+none)
		out = r.Apply([]Item{num("p0/b", lifecycle.CPUQuota, 40_000), num("p0", lifecycle.CPUQuota, 50_000)})
		want(t, states(out), "p0/b cpu.quota applied 40000", "p0 cpu.quota applied 50000")
		if len(c.refused) > 0 {
			t.Errorf("%v: refused %q", v, c.refused)
		}
	}
}

// TestParentWaitsForMove: a child moves to a set that shares no CPU with its old one. The parent must not
// lose the old CPUs before the child has moved: version 1 would refuse that, and version 2 would run the
// child on what the parent has left.
func TestParentWaitsForMove(t *testing.T) {
	for _, v := range versions {
		r, c := countedRig(t, v)
		r.Apply([]Item{parentCPUs("p0", "0-2"), cpus("p0/a", "0"), cpus("p0/b", "1")})
		r.log()
		r.Apply([]Item{parentCPUs("p0", "1-3"), cpus("p0/a", "3")})
		want(t, r.log(), "p0/cpuset.cpus=0-3", "p0/a/cpuset.cpus=3", "p0/cpuset.cpus=1-3")
		if len(c.refused) > 0 {
			t.Errorf("%v: refused %q", v, c.refused)
		}
	}
}

// TestOutdatedReading: another program changes a parent meanwhile, so that the kernel refuses an order that
// was planned from the last verified values.
func TestOutdatedReading(t *testing.T) {
	r := newRig(t, cgroup.V1, "p/a")
	r.Apply([]Item{parentCPUs("p", "0-3"), cpus("p/a", "0")})
	if err := r.tree.Write("p", lifecycle.Value{Field: lifecycle.CPUSetCPUs, Text: "0-1"}); err != nil {
		t.Fatal(err)
	}
	out := r.Apply([]Item{parentCPUs("p", "1-3"), cpus("p/a", "2")})
	want(t, states(out), "p cpuset.cpus applied 1-3", "p/a cpuset.cpus applied 2")
}

// TestNewerValueWins: newer values arrive while an older batch is being written.
func TestNewerValueWins(t *testing.T) {
	r := newRig(t, cgroup.V2, "a", "b", "c")
	once := false
	r.fake.FailWrites(func(string, string) error {
		if !once {
			once = true
			r.RecordOnly([]Item{num("b", lifecycle.CPUShares, 3000)})
			r.Forget("c")
		}
		return nil
	})
	out := r.Apply([]Item{num("a", lifecycle.CPUShares, 2000), num("b", lifecycle.CPUShares, 2000), num("c", lifecycle.CPUShares, 2000)})
	want(t, states(out), "a cpu.shares applied 77", "b cpu.shares superseded ", "c cpu.shares forgotten ")
	want(t, r.log(), "a/cpu.weight=77")
	want(t, states(r.Reconcile("b")), "b cpu.shares applied 115")
}
