package install_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/trimtab/trimtab/test/vm/agent"
)

// configure changes the configuration, which the agents apply to running pods.
func (c *cluster) configure() {
	before := c.apart()
	c.follow("Configure")
	c.await("shared pods have left the reserved CPUs", func(ctx context.Context) error {
		web, err := c.pods(ctx, "web")
		for _, p := range web {
			if overlap(p.CPUs, "0-1") {
				return fmt.Errorf("web has %s", p.CPUs)
			}
		}
		return err
	})
	c.unmoved(before, c.apart())
}

// unmoved compares the kernel's files of the owner of CPUs.
func (c *cluster) unmoved(before, after pod) {
	c.t.Helper()
	if before.name != after.name || before.running != after.running {
		c.t.Errorf("db was %s %+v, and is %s %+v", before.name, before.running, after.name, after.running)
	}
}

// refused writes an invalid configuration into the ConfigMap: each agent keeps its previous one.
func (c *cluster) refused() {
	before := c.apart()
	good := c.must(`kubectl -n kube-system get configmap trimtab -o json`)
	var object struct{ Data map[string]string }
	if err := json.Unmarshal([]byte(good), &object); err != nil {
		c.t.Fatal(err)
	}
	c.configMap(object.Data["config.yaml"] + "\npools: {reserved: all of them}\n")
	for _, n := range c.nodes {
		c.await(n.name+" refuses the configuration", func(context.Context) error {
			s, err := agent.New(n.m).Status()
			if err == nil && s.ConfigError == "" {
				err = errNotYet
			}
			return err
		})
	}
	c.condition("ConfigurationRefused")
	c.unmoved(before, c.apart())
	c.configMap(object.Data["config.yaml"])
	for _, n := range c.nodes {
		c.await(n.name+" has the good one again", func(context.Context) error {
			s, err := agent.New(n.m).Status()
			if err == nil && s.ConfigError != "" {
				err = errors.New(s.ConfigError)
			}
			return err
		})
	}
	c.condition("Ready")
}

func (c *cluster) configMap(text string) {
	c.t.Helper()
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"config.yaml": text}})
	if err != nil {
		c.t.Fatal(err)
	}
	c.must(`kubectl -n kube-system patch configmap trimtab --type merge --patch '` + string(patch) + `'`)
}

// layers rolls out a ConfigMap above the chart's configuration, and then writes an invalid one.
func (c *cluster) layers() {
	c.once("Ask all nodes", "make build")
	before := c.apart()
	for _, p := range c.shared() {
		if !overlap(p.CPUs, "7") {
			c.t.Errorf("%s has %s: a change that takes CPU 7 from it would not be seen", p.name, p.CPUs)
		}
	}
	said := c.follow("Configure nodes")
	for _, want := range []string{"reserved", "node n1 has the new configuration", "node n2 has the new configuration", "done: 2 nodes"} {
		if !strings.Contains(said, want) {
			c.t.Errorf("the page's commands do not say %q:\n%s", want, said)
		}
	}
	c.reserved("7")
	c.unmoved(before, c.apart())
	c.wrongLayer()
	c.reserved("7")
	c.unmoved(before, c.apart())
	c.must("kubectl trimtab config apply -f examples/cluster/reserved.yaml")
	c.condition("Ready")
}

// reserved waits until no shared pod has one of these CPUs, and the agents report which layer reserved
// them.
func (c *cluster) reserved(cpus string) {
	c.t.Helper()
	c.await("shared pods are not on CPUs "+cpus, func(ctx context.Context) error {
		web, err := c.pods(ctx, "web")
		for _, p := range web {
			if overlap(p.CPUs, cpus) {
				return fmt.Errorf("web has %s", p.CPUs)
			}
		}
		return err
	})
	for _, n := range c.nodes {
		c.configuredFrom(n, "API server")
	}
}

// wrongLayer writes a ConfigMap with an unknown key without the plugin, which would refuse it.
func (c *cluster) wrongLayer() {
	c.t.Helper()
	c.must(`kubectl -n kube-system patch configmap trimtab-cluster --type merge --patch '{"data": {"config.yaml": "apiVersion: trimtab.io/v1alpha1\nkind: Config\npols: {}\n"}}'`)
	c.condition("ConfigurationRefused")
	c.oneEvent("kube-system", "trimtab-cluster", "ConfigurationRefused", "pols")
}

// event waits until the agent of a node has written an event about an object.
func (c *cluster) event(n *node, namespace, about, reason, says string) {
	c.t.Helper()
	c.await(fmt.Sprintf("%s has an event %s about %s", n.name, reason, about), func(context.Context) error {
		said, err := c.sh("kubectl -n " + namespace + " get events --field-selector reportingComponent=trimtab,involvedObject.name=" + about + ",reason=" + reason +
			` -o jsonpath='{range .items[*]}{.reportingInstance} {.type} {.message}{"\n"}{end}'`)
		for line := range strings.Lines(said) {
			if strings.HasPrefix(line, n.name+" Warning ") && strings.Contains(line, says) {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("events: %q", said))
	})
}

// oneEvent waits until there is an event about an object: one for all nodes, written by one of them.
func (c *cluster) oneEvent(namespace, about, reason, says string) {
	c.t.Helper()
	c.await(fmt.Sprintf("there is one event %s about %s", reason, about), func(context.Context) error {
		said, err := c.sh("kubectl -n " + namespace + " get events --field-selector reportingComponent=trimtab,involvedObject.name=" + about + ",reason=" + reason +
			` -o jsonpath='{range .items[*]}{.reportingInstance} {.type} {.message}{"\n"}{end}'`)
		if err != nil || strings.Count(said, "\n") != 1 || !strings.Contains(said, " Warning ") || !strings.Contains(said, says) {
			return fmt.Errorf("events: %q (%w)", said, err)
		}
		return nil
	})
}
