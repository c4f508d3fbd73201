package agent_test

import (
	"testing"

	"github.com/trimtab/trimtab/internal/agent/simulated"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// ownFieldScenario computes fields of a container from the same fields.
const ownFieldScenario = `
name: own-field
about: Rules that compute fields from themselves start from the kubelet's last request, also after restarts.
node: {cpus: "1s x 1n x 4c", cgroup: v2, driver: cgroupfs}
config:
  rules:
    - name: double
      match: container.name == "cache"
      set:
        - {field: memory.limit, valueExpression: container.resources.memory * 2}
        - {field: cpu.shares, valueExpression: container.resources.shares * 2}
steps:
  - name: it starts
    run:
      - pod: {namespace: shop, name: store, qos: Burstable}
        containers: [{name: cache, resources: {shares: 512, quota: 100000, memory: 268435456}}]
    want: {shop/store/cache: {memory: 536870912, shares: 1024, quota: 100000}}
  - name: the agent restarts
    restart: agent
    want: {shop/store/cache: {memory: 536870912, shares: 1024, quota: 100000}}
  - name: the kubelet resizes it
    update: {container: shop/store/cache, resources: {shares: 1024, quota: 200000, memory: 134217728}, pod: {shares: 1024, quota: 200000}}
    want: {shop/store/cache: {memory: 268435456, shares: 2048, quota: 200000}}
  - name: the agent restarts after the resize
    restart: agent
    want: {shop/store/cache: &now {memory: 268435456, shares: 2048, quota: 200000}}
  - name: the runtime restarts
    restart: runtime
    want: {shop/store/cache: *now}
  - name: the agent restarts again
    restart: agent
    want: {shop/store/cache: *now}
  - name: the rules are gone
    reconfigure: {}
    want: {shop/store/cache: {memory: 134217728, shares: 1024, quota: 200000}}
`

// TestRuleOfItsOwnField: no restart computes a field again from what the agent had set.
func TestRuleOfItsOwnField(t *testing.T) {
	t.Parallel()
	s, err := scenario.Parse([]byte(ownFieldScenario))
	if err != nil {
		t.Fatal(err)
	}
	if err := sim.Run(t.Context(), s, sim.RunOptions{Agent: simulated.New, KeepState: true}); err != nil {
		t.Error(err)
	}
}
