package kubectl

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestKubectl asks two agents of different machines through one API server, and covers a node without an
// agent, a node whose kubelet does not answer, and users without a needed rule.
func TestKubectl(t *testing.T) {
	c := start(t)
	c.want(c.run("nodes"), 1, "is the chart installed?")
	c.agentOn("n1", "demo", map[string]any{"pool": "big"})
	c.agentOn("n2", "pools-dedicated", nil)
	c.node("n3", 10250, nil)

	t.Run("nodes", func(t *testing.T) { c.at(t).nodes() })
	t.Run("one node", func(t *testing.T) { c.at(t).oneNode() })
	t.Run("pods", func(t *testing.T) { c.at(t).pods() })
	t.Run("doctor", func(t *testing.T) { c.at(t).doctor() })
	t.Run("rights", func(t *testing.T) { c.at(t).rights() })
	t.Run("wrong use", func(t *testing.T) { c.at(t).wrongUse() })
	t.Run("unreachable", func(t *testing.T) { c.at(t).unreachable() })
}

// at returns the same cluster for a part of the test.
func (c *cluster) at(t *testing.T) *cluster {
	t.Helper()
	d := *c
	d.T = t
	return &d
}

func (c *cluster) nodes() {
	a := c.run("nodes")
	c.want(a, 0, "NODE   VERSION", "n1     v0.1.0    nri connected   yes", "n3     -", "no agent", "no agent has the version devel of this plugin")
	var list struct{ Items []map[string]any }
	if err := json.Unmarshal([]byte(c.run("nodes", "-o", "json").out), &list); err != nil || len(list.Items) != 3 || list.Items[1]["node"] != "n2" {
		c.Errorf("nodes as JSON: %v, %v", list.Items, err)
	}
	c.want(c.run("nodes", "-o", "yaml", "--agent-namespace", "kube-system"), 0, "attachment: nri connected")
	c.want(c.run("nodes", "--agent-namespace", "default"), 1, "in namespace default: is the chart installed?")
}

func (c *cluster) oneNode() {
	c.want(c.run("status", "n1"), 0, "shop/web", "2-15,18-31")
	c.want(c.run("status", "n2", "-o", "json"), 0, `"version": "v0.1.0"`)
	c.want(c.run("status", "n3"), 3, "node n3: no agent")
	c.want(c.run("status", "n9"), 1, `no node "n9"`)
	c.want(c.run("events", "n1"), 0, "StopContainer shop/db/postgres")
	all := c.run("events")
	c.want(all, 0, " n1 StopContainer shop/db/postgres", " n2 CreateContainer default/next/main")
	c.want(c.run("events", "n2", "-o", "json"), 0, `"node":"n2"`)
	c.want(c.run("top", "n1", "--once"), 0, "")
}

const pod = `{apiVersion: v1, kind: Pod, metadata: {name: new, namespace: shop}, spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}`

func (c *cluster) pods() {
	c.create("v1", "Namespace", "", "shop", nil)
	c.create("v1", "ServiceAccount", "shop", "trimtab", nil)
	c.pod("shop", "web", "n1", nil)
	c.want(c.run("explain", "pod/web", "-n", "shop", "-c", "app"), 0, "shop/web", "cpuset")
	c.want(c.run("explain", "web", "-n", "shop", "-o", "yaml"), 0, "container: app")
	c.want(c.run("explain", "pod/none", "-n", "shop"), 1, "there is no pod shop/none")
	c.want(c.run("explain", "pod/web", "-n", "shop", "-c", "none"), 1, "node n1: ")
	c.want(c.feed(pod, "plan", "-f", "-", "n1"), 0, "shop/new")
	c.want(c.feed(pod, "plan", "-f", "-"), 0, "n1", "n2", "shop/new/c=")
	c.want(c.feed("{kind: Horse}", "plan", "-f", "-"), 1, "only 1 Horse")
}

func (c *cluster) doctor() {
	a := c.run("doctor")
	c.want(a, 1, "n3  agent: no agent", "    do: ")
	// With another socket than the one in the pod's configuration there would be no answer; the pods have
	// no runtime.
	for _, not := range []string{"nobody answers", "runtime:"} {
		if strings.Contains(a.out, not) {
			c.Errorf("the doctor says %q", not)
		}
	}
}

// rights: the roles of deploy/kubectl are sufficient, and without them the message names the missing rule.
func (c *cluster) rights() {
	who := []string{"--as", "jane"}
	as := func(args ...string) answer { return c.run(append(args, who...)...) }
	subject := []any{map[string]any{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}}
	bind := func(kind, namespace, of, name string) {
		c.create("rbac.authorization.k8s.io/v1", kind, namespace, "jane-"+strings.ToLower(of)+name, map[string]any{
			"subjects": subject, "roleRef": map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": of, "name": name}})
	}
	c.want(as("nodes"), 3, "not allowed to list pods in all namespaces: your role needs {apiGroups: [\"\"], resources: [pods], verbs: [list]}")
	c.file("deploy/kubectl/roles.yaml")
	bind("ClusterRoleBinding", "", "ClusterRole", "trimtab-kubectl")
	c.plane.Wait("the API server knows of the binding", func(context.Context) error { return known(as("nodes"), "pods/exec") })
	c.want(as("status", "n1"), 3, "resources: [pods/exec], verbs: [create]")
	bind("RoleBinding", "kube-system", "Role", "trimtab-kubectl")
	c.plane.Wait("the API server knows of the binding", func(context.Context) error { return known(as("nodes"), "n1     v0.1.0") })
	c.want(as("status", "n1"), 0, "shop/web")
}

func (c *cluster) wrongUse() {
	c.want(c.run("status"), 2, "needs the argument NODE")
	c.want(c.run("explain", "deployment/x"), 2, "is not pod/NAME")
	c.want(c.run("plan"), 2, "-f is required")
	c.want(c.run("nodes", "-o", "xml"), 2, "want table or json or yaml")
	c.want(c.run("nodes", "--context", "none"), 2, "none")
	c.want(c.run("nodes", "--server", "https://127.0.0.1:1"), 3, "does not answer")
	c.want(c.run("nodes", "--token", "wrong"), 3, "does not accept your credentials")
}

// unreachable: a node whose kubelet does not answer affects only its own line.
func (c *cluster) unreachable() {
	c.node("n4", 1, nil)
	c.pod("kube-system", "trimtab-n4", "n4", agentLabels)
	a := c.run("nodes")
	c.want(a, 3, "n1     v0.1.0", "1 of 3 agents did not answer", "127.0.0.1:1")
	c.want(c.run("doctor"), 1, "n4  agent: cannot run trimtab in pod kube-system/trimtab-n4")
}

// known returns nil if an answer contains a text.
func known(a answer, text string) error {
	if strings.Contains(a.out+a.err, text) {
		return nil
	}
	return fmt.Errorf("no %q in %s%s", text, a.out, a.err)
}
