package kubelet_test

import "testing"

// TestThroughProxy has the kubelet reach its runtime through the agent, by the defaults of both sides. Static pods get
// what they were promised; the agent is killed and comes back while more are to start, and nothing that runs moves.
func TestThroughProxy(t *testing.T) {
	t.Parallel()
	n := boot(t, map[string]any{"attach": "cri"}, map[string]any{"containerRuntimeEndpoint": "unix:///var/run/trimtab/cri.sock"})
	n.apply(
		owner("db", "0-1", map[string]string{"cpu": "2", "memory": "128Mi"}),
		pod{name: "job", labels: map[string]string{class: "BE"}, annotations: map[string]string{"node.koordinator.sh/extended-resource-spec": batch}},
	)
	wants := map[string]want{
		"db":  {cpus: "0-1", quota: -1, podQuota: -1, class: "dedicated", seat: "exclusive"},
		"job": {cpus: "2-3", shares: 512, quota: 50_000, podShares: 512, podQuota: 50_000, memory: 128 << 20, podMemory: 128 << 20, class: "reclaimed"},
	}
	before := n.awaitAll("started through the proxy", wants)

	n.apply(pod{name: "web", labels: map[string]string{class: "LS"}, requests: map[string]string{"cpu": "500m"}})
	n.a.Kill()
	if err := n.a.Run(); err != nil {
		t.Fatal(err)
	}
	wants["web"] = want{cpus: "2-3", quota: -1, class: "shared", seat: "shared"}
	n.unmoved(before, n.awaitAll("the agent was killed", wants))
}
