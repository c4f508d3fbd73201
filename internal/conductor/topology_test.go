package conductor_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/placement/numahints"
)

// TestTopologyInvariants plays the histories of the policy pools under every policy of the
// topology manager that only reports.
func TestTopologyInvariants(t *testing.T) {
	t.Parallel()
	for _, policy := range []numahints.Policy{numahints.BestEffort, numahints.Restricted, numahints.SingleNode, numahints.Numeric} {
		for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
			t.Run(string(policy)+" "+v.String(), func(t *testing.T) {
				t.Parallel()
				rapid.Check(t, func(rt *rapid.T) {
					mo := newPooled(t, v, faults{}, rapid.IntRange(0, 199).Draw(rt, "seed"))
					mo.policy.Topology = engine.TopologyManager{Policy: policy, PodScope: rapid.Bool().Draw(rt, "pod"), AlignedResources: []string{"cpu", "memory"}}
					mo.con = nil
					mo.boot()
					play(mo, steps().Draw(rt, "history"))
					if len(mo.broken) > 0 {
						rt.Fatalf("%v", mo.broken)
					}
				})
			})
		}
	}
}
