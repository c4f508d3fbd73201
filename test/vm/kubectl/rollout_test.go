package kubectl

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trimtab/trimtab/test/vm/controlplane"
)

const head = "apiVersion: trimtab.io/v1alpha1\nkind: Config\n"

// TestRollout rolls a group's configuration out to two nodes: completely, interrupted and continued, and
// stopped by an unhealthy node and undone.
func TestRollout(t *testing.T) {
	c := start(t)
	for _, n := range []string{"n1", "n2"} {
		c.agentOn(n, "demo", map[string]any{"pool": "latency"})
	}
	c.agentOn("n3", "demo", nil)
	first := c.text("first.yaml", "log: {level: debug}\npools: {reserved: \"0-1,16-17\"}\n")
	second := c.text("second.yaml", "pools: {reserved: \"0,16\"}\n")
	worse := c.text("worse.yaml", "hooks: {batch: {enabled: false}}\n")
	group := func(args ...string) []string {
		return append([]string{"config", "apply", "--group", "latency"}, args...)
	}

	c.want(c.run(group("-f", c.text("bad.yaml", "pols: {}\n"))...), 2, `bad.yaml:3: pols: unknown key`)
	c.want(c.run(group("-f", first, "--watch")...), 1, "select its nodes with --selector")
	whole := group("-f", first, "--watch", "-l", "pool=latency", "--pause", "100ms")
	c.want(c.run(append(slices.Clone(whole), "--dry-run")...), 0, "2 nodes, one node after another: n1 n2", "nothing was written")
	c.maps()
	c.want(c.run(whole...), 0, "node n1 has the new configuration", "node n2 has the new configuration", "done: 2 nodes")
	c.maps("trimtab-group-latency")
	c.want(c.run(whole...), 0, "has this configuration already")
	c.want(c.run("status", "n2", "-o", "yaml"), 0, "ConfigMap kube-system/trimtab-group-latency")
	if a := c.run("status", "n3", "-o", "yaml"); strings.Contains(a.out, "trimtab-group-latency") {
		t.Error("n3 is not in the group, and has its configuration")
	}
	c.want(c.run("config", "diff", "--group", "latency", "-f", second), 1, "-pools: {reserved: \"0-1,16-17\"}", "+pools: {reserved: \"0,16\"}", "shop/web/app")

	c.interrupt(group("-f", second, "--watch", "--pause", "1h"))
	c.maps("trimtab-group-latency", "trimtab-node-n1")
	c.want(c.run(group("-f", worse, "--watch")...), 1, "another rollout, of trimtab-group-latency, has changed node n1")
	c.want(c.run(group("-f", second)...), 1, "continue with --watch")
	c.want(c.run(group("-f", second, "--watch", "--pause", "100ms")...), 0, "continuing: 1 of 2 nodes have the new configuration", "done: 2 nodes")
	c.maps("trimtab-group-latency")

	c.want(c.run(group("-f", worse, "--watch", "--pause", "10m")...), 1, "the rollout stopped at node n1", "are not in force (before the rollout: 0)", "1 of 2 nodes have the new configuration")
	c.maps("trimtab-group-latency", "trimtab-node-n1")
	c.want(c.run("config", "apply", "--abort"), 0, "restored the previous configuration of 1 nodes: n1")
	c.maps("trimtab-group-latency")
	c.want(c.run("config", "apply", "--abort"), 0, "no rollout is in progress")

	c.want(c.run("config", "apply", "-f", second, "--node", "n3", "--watch", "--pause", "100ms"), 0, "done: 1 nodes")
	c.want(c.run("config", "apply", "-f", second), 0, "3 nodes apply it now")
	c.maps("trimtab-cluster", "trimtab-group-latency", "trimtab-node-n3")
}

// text writes a configuration and returns its path.
func (c *cluster) text(name, body string) string {
	file := filepath.Join(c.dir, name)
	if err := os.WriteFile(file, []byte(head+body), 0o600); err != nil {
		c.Fatal(err)
	}
	return file
}

// names are the names of the ConfigMaps that agents read.
func (c *cluster) names(ctx context.Context) []string {
	l, err := c.plane.Dynamic(controlplane.Admin).Resource(resource("v1", "ConfigMap")).Namespace("kube-system").
		List(ctx, v1.ListOptions{LabelSelector: "trimtab.io/config"})
	if err != nil {
		c.Fatal(err)
	}
	var names []string
	for _, o := range l.Items {
		names = append(names, o.GetName())
	}
	slices.Sort(names)
	return names
}

// maps fails unless exactly these ConfigMaps exist.
func (c *cluster) maps(want ...string) {
	c.Helper()
	if got := c.names(c.Context()); !slices.Equal(got, want) {
		c.Errorf("ConfigMaps %v, want %v", got, want)
	}
}

// interrupt starts a rollout, and interrupts it while it watches its first node.
func (c *cluster) interrupt(args []string) {
	var out bytes.Buffer
	cmd := exec.CommandContext(c.Context(), c.plugin, append(args, "--kubeconfig", c.conf)...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		c.Fatal(err)
	}
	c.plane.Wait("the first node has it", func(ctx context.Context) error {
		// The version decides, because the agent may still use the ConfigMap of an earlier rollout.
		o, err := c.plane.Dynamic(controlplane.Admin).Resource(resource("v1", "ConfigMap")).Namespace("kube-system").
			Get(ctx, "trimtab-node-n1", v1.GetOptions{})
		if err != nil {
			return err
		}
		return known(c.run("status", "n1", "-o", "yaml"), "ConfigMap kube-system/trimtab-node-n1\n      version: \""+o.GetResourceVersion()+"\"")
	})
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		c.Fatal(err)
	}
	err := cmd.Wait()
	c.Logf("interrupted: %v\n%s", err, out.String())
	for _, want := range []string{"stopped at node n1: interrupted", "1 of 2 nodes have the new configuration", "Run the same command again to continue"} {
		if !strings.Contains(out.String(), want) {
			c.Errorf("the answer lacks %q", want)
		}
	}
}
