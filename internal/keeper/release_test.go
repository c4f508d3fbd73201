package keeper

import (
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestReleaseUnderTasks gives back a set that nobody had set, in a cgroup with
// tasks: version 2 refuses to take it away (kernels 6.1 and 6.12: ENOSPC).
func TestReleaseUnderTasks(t *testing.T) {
	r := newRig(t, cgroup.V2, "p/a")
	if err := r.fake.SetTasks("p/a", 1); err != nil {
		t.Fatal(err)
	}
	r.Apply([]Item{cpus("p/a", "1")})
	if err := r.fake.WriteFile("p/a/cpuset.cpus", []byte("\n")); err == nil {
		t.Fatal("the fake takes a set away from tasks")
	}
	o := r.Release("p/a", lifecycle.CPUSetCPUs, "")
	if o.State != Applied || o.Err != nil {
		t.Errorf("%+v", o)
	}
	if got, err := r.tree.EffectiveCPUs("p/a"); err != nil || got != "0-7" {
		t.Errorf("tasks may use %q, %v", got, err)
	}
	if rows := r.Rows(); len(rows) != 0 {
		t.Errorf("rows left: %+v", rows)
	}
}

// TestReleaseOfTheForgotten gives back what an owner had that is said to be gone
// and whose cgroup is there; one that comes back is known as it was.
func TestReleaseOfTheForgotten(t *testing.T) {
	r := newRig(t, cgroup.V2, "p/a", "p/b")
	r.Apply([]Item{cpus("p/a", "1"), cpus("p/b", "2")})
	r.Forget("p/a")
	r.Forget("p/b")
	r.Apply([]Item{cpus("p/b", "3")})
	for _, o := range r.ReleaseAll() {
		if o.Err != nil {
			t.Errorf("%+v", o)
		}
	}
	for _, dir := range []string{"p/a", "p/b"} {
		if got, err := r.tree.Read(dir, lifecycle.CPUSetCPUs, ""); err != nil || got != "" {
			t.Errorf("%s has %q, %v, had nothing", dir, got, err)
		}
	}
	if rows := r.Rows(); len(rows) != 0 {
		t.Errorf("rows left: %+v", rows)
	}
}
