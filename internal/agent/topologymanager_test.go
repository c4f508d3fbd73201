package agent

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// TestTopologyManagerPolicies: a policy that does not exist is refused with those that do; without one it is none.
func TestTopologyManagerPolicies(t *testing.T) {
	_, err := config.Parse("c.yaml", []byte("topologyManager: {policy: nearest}\n"))
	if err == nil || !strings.Contains(err.Error(), "topologyManager.policy") || !strings.Contains(err.Error(), "single-numa-node") {
		t.Errorf("a policy that does not exist: %v", err)
	}
	if c := config.Default(); c.TopologyManager.Policy != "none" {
		t.Errorf("the default is %q", c.TopologyManager.Policy)
	}
}

// TestTopologyManagerNodes: 9 NUMA nodes are no limit; the configured limit is, unless there is no policy.
func TestTopologyManagerNodes(t *testing.T) {
	m, err := describe.Parse("9s x 1n x 2c")
	if err != nil {
		t.Fatal(err)
	}
	c := config.Default().TopologyManager
	for _, row := range []struct {
		policy string
		limit  int
		want   string
	}{{"restricted", 64, ""}, {"restricted", 8, "9 NUMA nodes"}, {"none", 8, ""}} {
		c.Policy, c.MaxNodes = row.policy, row.limit
		if _, err := topologyOf(c, m); (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%+v: %v", row, err)
		}
	}
}
