package install_test

import (
	"encoding/json"
	"strings"

	"github.com/trimtab/trimtab/test/vm/agent"
)

// units runs the agents outside of pods, as the Debian package's units do, and asks them through pods
// without an agent.
func (c *cluster) units() {
	if c.page.blocks["Make the image available"] != nil { // selected alone by -run
		c.available()
		c.must("kubectl apply -f examples/cluster/classes.yaml")
	}
	c.once("Ask all nodes", "make build")
	pods := readPage(c.t, "kubectl.md")
	chart := c.must("helm show chart deploy/charts/trimtab")
	_, version, _ := strings.Cut(chart, "appVersion: ")
	version, _, _ = strings.Cut(version, "\n")
	for _, n := range c.nodes {
		n.m.Sh("ctr -n k8s.io images tag --force registry.example/trimtab:v1 ghcr.io/trimtab/trimtab:" + strings.Trim(version, `"`))
		a := agent.New(n.m)
		if err := a.Configure(json.RawMessage(`{"pools": {"reserved": "0"}, "placement": {"policy": "pools"}}`)); err != nil {
			c.t.Fatal(err)
		}
		if err := a.Run(); err != nil {
			c.t.Fatalf("the agent of %s: %v", n.name, err)
		}
		defer a.Kill()
	}
	c.must("kubectl label nodes --all trimtab=unit")
	c.page = pods
	c.follow("Agents that run as units")
	said := c.must("kubectl trimtab nodes -o json && kubectl rollout restart deployment/db && kubectl rollout status deployment/db --timeout=7m")
	if strings.Count(said, `"ready": true`) != len(c.nodes) || strings.Count(said, "nri connected") != len(c.nodes) {
		c.t.Errorf("kubectl trimtab nodes says %s", said)
	}
	owner := c.apart()
	for command, want := range map[string]string{
		"explain pod/" + owner.name:             owner.CPUs,
		"status " + owner.on.name:               "default/" + owner.name,
		"doctor":                                "no problems on 2 nodes",
		"top --once " + owner.on.name:           owner.name,
		"events " + owner.on.name:               "CreateContainer default/" + owner.name,
		"plan -f examples/cluster/classes.yaml": "default/web/web=",
		"config diff -f examples/cluster/reserved.yaml || test $? = 1": "+pools:",
	} {
		if said := c.must("kubectl trimtab " + command); !strings.Contains(said, want) {
			c.t.Errorf("kubectl trimtab %s does not say %q:\n%s", command, want, said)
		}
	}
	c.must("helm uninstall trimtab-units --namespace kube-system --wait --cascade foreground")
}
