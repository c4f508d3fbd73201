package agent_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/agent/simulated"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// coldStartScenario ends cold starts of one second. The last steps say that no restart begins them again.
const coldStartScenario = `
name: cold-start
about: The end of cold starts.
node: {cpus: "1s x 1n x 4c, 2GiB/node", farMemory: [4Gi], distances: [[10, 60], [60, 10]], cgroup: %s, driver: cgroupfs}
config:
  authorization: [{kinds: [memory-type], namespaces: ["*"], decision: allow}]
  placement: {policy: topology-aware, topologyAware: {pinMemory: true}}
steps:
  - name: a short cold start
    run:
      - pod:
          namespace: shop
          name: cold
          qos: Burstable
          annotations: {memory-type.resource-policy.nri.io: "dram,pmem", cold-start.resource-policy.nri.io: "duration: 1s"}
        containers: [{name: c, resources: {shares: 102}}, {name: d, resources: {shares: 102}}]
      - pod:
          namespace: shop
          name: colder
          qos: Burstable
          annotations: {memory-type.resource-policy.nri.io: "dram,pmem", cold-start.resource-policy.nri.io: "duration: 1h"}
        containers: [{name: c, resources: {shares: 102}}]
  - name: it ends
    run: [{pod: {namespace: shop, name: other, qos: BestEffort}, containers: [{name: c, resources: {shares: 2}}]}]
    want: &want
      shop/cold/c: {from: "nri-plugins 2.7: DRAM after its duration", mems: "0-1"}
      shop/cold/d: {from: "nri-plugins 2.7: DRAM after its duration", mems: "0-1"}
      shop/colder/c: {from: "nri-plugins 2.7: PMEM alone until its duration ends", mems: "1"}
  - name: meanwhile
    run: [{pod: {namespace: shop, name: third, qos: BestEffort}, containers: [{name: c, resources: {shares: 2}}]}]
  - {name: the agent is started again, restart: agent, want: *want}
  - {name: the runtime is started again, restart: runtime, want: *want}
`

// TestColdStart plays the end of cold starts, with the agent's checkpoint and without.
func TestColdStart(t *testing.T) {
	t.Parallel()
	for _, cgroup := range []string{"v1", "v2"} {
		for name, keeps := range map[string]bool{"checkpoint": true, "records alone": false} {
			t.Run(cgroup+" "+name, func(t *testing.T) {
				t.Parallel()
				s, err := scenario.Parse(fmt.Appendf(nil, coldStartScenario, cgroup))
				if err != nil {
					t.Fatal(err)
				}
				if err := sim.Run(t.Context(), s, sim.RunOptions{KeepState: keeps, Patience: time.Minute, Agent: func(o sim.AgentOptions) (sim.Agent, error) {
					options := simulated.Options(o)
					options.SweepInterval = 10 * time.Millisecond
					return agent.New(options)
				}}); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
