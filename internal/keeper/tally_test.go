package keeper

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestTally counts the outcomes of values, and repairs of changes by other programs: once per repair, and never for a
// new value of the agent.
func TestTally(t *testing.T) {
	for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(v.String(), func(t *testing.T) {
			r := newRig(t, v, "a")
			items := []Item{cpus("a", "0-3"), num("a", lifecycle.MemoryLimit, 1<<20)}
			r.Apply(items)
			r.Reconcile("a")
			r.Apply([]Item{cpus("a", "0-1")})
			want := Tally{Results: map[State]uint64{Applied: 3, Unchanged: 2}}
			if d := cmp.Diff(want, r.Tally()); d != "" {
				t.Fatalf("before anybody else wrote (-want +got):\n%s", d)
			}
			foreign := func(field lifecycle.Field, text string) {
				t.Helper()
				if err := r.tree.WriteText("a", field, "", text); err != nil {
					t.Fatal(err)
				}
			}
			foreign(lifecycle.CPUSetCPUs, "4-5")
			foreign(lifecycle.MemoryLimit, "8192")
			r.Reconcile("a")
			r.Reconcile("a")
			want = Tally{
				Results: map[State]uint64{Applied: 5, Unchanged: 4},
				Drift:   map[string]uint64{"cpuset.cpus": 1, "memory.limit": 1},
			}
			if d := cmp.Diff(want, r.Tally()); d != "" {
				t.Errorf("after somebody else wrote (-want +got):\n%s", d)
			}
		})
	}
}

func TestSettingsAreBounded(t *testing.T) {
	for key, want := range map[string]string{"cpu.idle": "cpu.idle", "io.weight": "io.weight", "io.latency": "other"} {
		if got := (fileKey{field: lifecycle.Unified, key: key}).setting(); got != want {
			t.Errorf("%s is counted as %s, want %s", key, got, want)
		}
	}
}
