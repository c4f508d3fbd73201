package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// observeLeft plays a node as another agent leaves it beside an agent that observes. Nothing may be written, and containers
// stay where they are. The differing cpusets, as "NODE, not TRIMTAB" by container, must come to meet a condition, which
// returns what it misses.
func observeLeft(t *testing.T, n *leftNode, attach string, misses func(differs map[scenario.Ref]string) string) {
	t.Helper()
	o, left, last := &observing{}, &takingOver{node: n}, len(n.Scenario.Steps)-1
	var before map[scenario.Ref]string
	r := o.options(t, attach)
	r.BeforeStart = func(k *kernel.Cgroups, _ string) error { left.kernel = k; return nil }
	r.ExtraCheck = func(i int, r *sim.Runtime, source status.Source) []string {
		if known, runs := len(source.Status().Containers), len(r.Containers()); i < last && known != runs {
			return []string{fmt.Sprintf("the agent knows %d of %d containers", known, runs)} // bypass would decide those of two steps in either order
		} else if i < last {
			return nil
		}
		if before == nil {
			if err := left.write(r); err != nil {
				return []string{err.Error()}
			}
			before = cpusOf(r)
		}
		all := source.Status()
		if known := len(all.Containers); known != len(before) {
			return []string{fmt.Sprintf("the agent knows %d of %d containers", known, len(before))}
		}
		differs := map[scenario.Ref]string{}
		for _, d := range status.ObservationOf(all).Differences {
			if d.Setting == "cpuset.cpus" {
				differs[scenario.Ref(d.Pod+"/"+d.Container)] = d.Node + ", not " + d.Trimtab
			}
		}
		unmet := unseen(all.Containers, before, differs)
		if m := misses(differs); m != "" {
			unmet = append(unmet, m)
		}
		return unmet
	}
	after := r.AfterStep
	r.AfterStep = func(i int, r *sim.Runtime, source status.Source) {
		if after(i, r, source); i == last {
			if d := cmp.Diff(before, cpusOf(r)); d != "" {
				t.Errorf("containers moved: %s", d)
			}
		}
	}
	if err := sim.Run(t.Context(), &n.Scenario, r); err != nil {
		t.Fatal(err)
	}
	if w := o.writes.count.Load(); w > 0 || o.observed == nil {
		t.Errorf("the agent wrote %d times, and reports %v", w, o.observed)
	}
}

// unseen lists containers whose cpuset differs from the decided one and is not reported, or the other way round.
func unseen(all []api.Container, kernel, differs map[scenario.Ref]string) (unmet []string) {
	for _, c := range all {
		ref := scenario.Ref(c.Pod + "/" + c.Name)
		has := strings.Fields(kernel[ref])[0]
		for _, v := range c.Values {
			if _, reported := differs[ref]; v.Field == "cpuset.cpus" && reported != (has != v.Value) {
				unmet = append(unmet, fmt.Sprintf("%s has %s, not %s: reported=%t", ref, has, v.Value, reported))
			}
		}
	}
	return unmet
}

// TestObserveLeft: beside nodes as other agents leave them an agent that observes writes nothing, moves nothing, and
// reports each cpuset that it would set otherwise.
func TestObserveLeft(t *testing.T) {
	t.Parallel()
	for i, name := range slices.Sorted(maps.Keys(leftNodes(t))) {
		for _, attach := range []string{"nri", "bypass"} {
			t.Run(name+"/"+attach, func(t *testing.T) {
				t.Parallel()
				n := leftNodes(t)[name]
				n.Scenario.Node.Cgroup = [2]string{"v2", "v1"}[i%2]
				observeLeft(t, n, attach, func(differs map[scenario.Ref]string) string {
					return cmp.Diff(n.Differs, differs, cmpopts.EquateEmpty())
				})
			})
		}
	}
}

// TestObserveFaults plants faults into a node that has none: each is found, and nothing else.
func TestObserveFaults(t *testing.T) {
	t.Parallel()
	for _, f := range []struct {
		name, cpus string
		ref        scenario.Ref
	}{
		{"a container is off its CPUs", "6,14", "shop/db/postgres"},
		{"a container is on one of its CPUs", "1", "shop/db/postgres"},
		{"a container overlaps an owner", "0-3,5-8,10-15", "shop/web/app"},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			n := leftNodes(t)["koordinator"]
			observeLeft(t, n, "nri", func(differs map[scenario.Ref]string) string {
				return cmp.Diff(map[scenario.Ref]string{}, differs)
			})
			n = leftNodes(t)["koordinator"]
			n.Kernel[f.ref] = f.cpus
			observeLeft(t, n, "nri", func(differs map[scenario.Ref]string) string {
				if len(differs) == 1 && strings.HasPrefix(differs[f.ref], f.cpus+", not ") {
					return ""
				}
				return fmt.Sprintf("%v is reported instead of %s for %s", differs, f.cpus, f.ref)
			})
		})
	}
}
