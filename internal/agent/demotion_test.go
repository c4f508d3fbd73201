package agent_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/agent/simulated"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

const demotionScenario = `
name: demotion
about: What the agent says of cold memory.
node: {cpus: "1s x 1n x 4c, 2GiB/node", farMemory: [4Gi], distances: [[10, 60], [60, 10]], tiers: {demotion: %t}, cgroup: %s, driver: cgroupfs}
config:
  mode: %s
  authorization: [{kinds: [memory-type], namespaces: ["*"], decision: allow}]
  placement: {policy: topology-aware, demotion: {enabled: true, slowPercent: 25}}
steps:
  - name: a container with both kinds of memory
    run:
      - pod: {namespace: shop, name: both, qos: Burstable, annotations: {memory-type.resource-policy.nri.io: "dram,pmem"}}
        containers: [{name: c, resources: {shares: 102}, uses: {"0": 41943040}}]
`

// TestDemotion: status and explain say how much memory was moved to slow nodes, or why none is. In mode observe nothing
// is moved.
func TestDemotion(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		on            bool
		cgroup, mode  string
		says, explain string
	}{
		"moved":           {true, "v2", "enforce", "10 MiB moved to slow memory, from 1 container with fast and slow memory", "10 MiB of 40 MiB of its anonymous memory are in slow memory, 10 MiB were moved there"},
		"demotion is off": {false, "v2", "enforce", "no memory is moved to slower nodes: demotion is off", ""},
		"cgroup v1":       {true, "v1", "enforce", "no memory is moved to slower nodes: cgroup v1 has no memory.reclaim", ""},
		"observe":         {true, "v2", "observe", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := scenario.Parse(fmt.Appendf(nil, demotionScenario, c.on, c.cgroup, c.mode))
			if err != nil {
				t.Fatal(err)
			}
			look := func(_ int, _ *sim.Runtime, from status.Source) (unmet []string) {
				said, explained := "", ""
				n := from.Status()
				for _, l := range n.Lines(time.Now()) {
					if l.Label == "demotion" {
						said += l.Text
					}
				}
				found, _ := from.Explain("shop", "both", "c")
				if len(found) == 1 && found[0].Demotion != nil {
					explained = found[0].Demotion.Text()
				}
				if !strings.Contains(said, c.says) || (said == "") != (c.says == "") || explained != c.explain {
					unmet = append(unmet, fmt.Sprintf("status says %q, wanted %q; explain %q, wanted %q", said, c.says, explained, c.explain))
				}
				return unmet
			}
			if err := sim.Run(t.Context(), s, sim.RunOptions{Patience: time.Minute, ExtraCheck: look, Agent: func(o sim.AgentOptions) (sim.Agent, error) {
				return agent.New(simulated.Options(o))
			}}); err != nil {
				t.Error(err)
			}
		})
	}
}
