package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/kube/configmaps"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/topology/describe"
	"github.com/trimtab/trimtab/test/vm/controlplane"
)

var eventsOf = schema.GroupVersionResource{Version: "v1", Resource: "events"}

var mapsOf = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

const header = "apiVersion: trimtab.io/v1alpha1\nkind: Config\n"

// configured is a cluster with a node n1 and the options of its agent.
type configured struct {
	*controlplane.Plane

	t          *testing.T
	admin      dynamic.Interface
	kubeconfig string
	dir        string
	keys       string // further keys of the node's file
	also       string // cluster.config.alsoRead
	log        logged
}

// logged is a log that is safe for concurrent use.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func newConfigured(t *testing.T) *configured {
	t.Helper()
	p := controlplane.Start(t)
	c := &configured{Plane: p, t: t, admin: p.Dynamic(controlplane.Admin), dir: t.TempDir()}
	c.kubeconfig = p.Kubeconfig("agent", "admin-token")
	for _, o := range []*unstructured.Unstructured{
		{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "trimtab"}}},
		{Object: map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "n1", "labels": map[string]any{"pool": "latency"}}}},
	} {
		r := schema.GroupVersionResource{Version: "v1", Resource: strings.ToLower(o.GetKind()) + "s"}
		if _, err := c.admin.Resource(r).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// put creates or replaces a ConfigMap. Without text it deletes it.
func (c *configured) put(name, selector, text string) {
	c.t.Helper()
	maps := c.admin.Resource(mapsOf).Namespace("trimtab")
	err := maps.Delete(c.t.Context(), name, metav1.DeleteOptions{})
	if text == "" {
		if err != nil {
			c.t.Fatal(err)
		}
		return
	}
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{configmaps.DataKey: header + text},
	}}
	o.SetName(name)
	o.SetLabels(map[string]string{configmaps.Label: "true"})
	o.SetAnnotations(map[string]string{configmaps.SelectorAnnotation: selector})
	if _, err := maps.Create(c.t.Context(), o, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// agent starts an agent on a described machine without a runtime; stop ends it.
func (c *configured) agent() (a *agent.Agent, stop func()) {
	c.t.Helper()
	file := filepath.Join(c.dir, "config.yaml")
	text := fmt.Sprintf("%scluster: {enabled: true, kubeconfig: %q, nodeName: n1, namespace: trimtab, config: {alsoRead: [%s]}}\npaths: {state: %q, key: %q, statusSocket: %q}\nnri: {socket: %q}\n%s",
		header, c.kubeconfig, c.also, c.dir+"/state", c.dir+"/key", "", c.dir+"/nri.sock", c.keys)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	conf, err := config.Load(file)
	if err != nil {
		c.t.Fatal(err)
	}
	m, err := describe.Parse("1s x 1n x 4c")
	if err != nil {
		c.t.Fatal(err)
	}
	tree, err := kernel.NewCgroups(cgroup.V2, "0-3", "0")
	if err != nil {
		c.t.Fatal(err)
	}
	a, err = agent.New(agent.Options{
		Config: conf, ConfigFile: file, MaxStartDelay: time.Millisecond, Machine: m, Tree: &cgroup.Tree{FS: tree, Version: cgroup.V2}, Log: slog.New(slog.NewTextHandler(&c.log, nil)),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		end()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			c.t.Errorf("the agent ended: %v", err)
		}
	})
	c.t.Cleanup(stop)
	return a, stop
}

// until waits for a state of the agent's configuration.
func (c *configured) until(a *agent.Agent, what string, done func(api.Node) bool) {
	c.t.Helper()
	c.Wait(what, func(context.Context) error {
		if n := a.Source().Status(); !done(n) {
			return fmt.Errorf("error %q, cluster %+v, config %+v", n.ConfigError, n.Cluster, n.Cluster.Config)
		}
		return nil
	})
}

// key waits until a key has a value from a source.
func (c *configured) key(a *agent.Agent, key, value, source string) {
	c.t.Helper()
	c.Wait(key+" is "+value, func(context.Context) error {
		for _, k := range keysOf(a) {
			if k.Key == key && (k.Value != value || k.Source != source) {
				n := a.Source().Status()
				return fmt.Errorf("it is %s from %s, want it from %s; error %q, cluster %+v %+v", k.Value, k.Source, source, n.ConfigError, n.Cluster, n.Cluster.Config)
			}
		}
		return nil
	})
}

func keysOf(a *agent.Agent) []api.Setting {
	return a.Source().(interface{ Config() api.Configuration }).Config().Keys
}

// TestConfig: the ConfigMaps of cluster, group and node override the file, in this order. Each change reaches the
// agent. It refuses an invalid one, which changes nothing.
func TestConfig(t *testing.T) {
	t.Parallel()
	c := newConfigured(t)
	c.keys = "placement: {policy: none}\npools: {reserved: \"0\"}\n"
	c.put(configmaps.ClusterMapName, "", "placement: {policy: pools, reclaimedCPUs: 2}\n")
	a, _ := c.agent()
	file := filepath.Join(c.dir, "config.yaml")
	c.key(a, "placement.policy", `"pools"`, "ConfigMap trimtab/trimtab-cluster")
	c.key(a, "pools.reserved", `"0"`, file)
	c.key(a, "strict", "false", "default")

	c.put(configmaps.GroupMapName("latency"), "pool=latency", "placement: {reclaimedCPUs: 1}\n")
	c.put(configmaps.GroupMapName("batch"), "pool=batch", "strict: true\n")
	c.put(configmaps.NodeMapName("n1"), "", "pools: {reserved: \"1\"}\n")
	c.put(configmaps.NodeMapName("n2"), "", "pools: {reserved: \"2\"}\n")
	c.key(a, "placement.reclaimedCPUs", "1", "ConfigMap trimtab/trimtab-group-latency")
	c.key(a, "pools.reserved", `"1"`, "ConfigMap trimtab/trimtab-node-n1")
	c.key(a, "strict", "false", "default")

	// The node moves to the other group.
	patch := []byte(`{"metadata":{"labels":{"pool":"batch"}}}`)
	if _, err := c.admin.Resource(nodesOf).Patch(t.Context(), "n1", "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.key(a, "strict", "true", "ConfigMap trimtab/trimtab-group-batch")
	c.key(a, "placement.reclaimedCPUs", "2", "ConfigMap trimtab/trimtab-cluster")

	for _, bad := range []struct{ name, selector, text, want string }{
		{configmaps.GroupMapName("other"), "pool!=latency", "strict: false\n", "its node selector and the node selector of ConfigMap trimtab-group-batch both match node n1"},
		{configmaps.GroupMapName("other"), "", "strict: false\n", "set the annotation trimtab.io/node-selector"},
		{"trimtab-nod-n1", "", "strict: false\n", "its name is not trimtab-cluster"},
	} {
		c.put(bad.name, bad.selector, bad.text)
		c.until(a, "refused", func(n api.Node) bool { return strings.Contains(n.ConfigError, bad.want) })
		c.key(a, "strict", "true", "ConfigMap trimtab/trimtab-group-batch")
		c.put(bad.name, "", "")
		c.until(a, "in force again", func(n api.Node) bool { return n.ConfigError == "" })
	}
	c.Wait("there is an event", func(ctx context.Context) error {
		all, err := c.admin.Resource(eventsOf).Namespace("trimtab").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=ConfigMap,reason=ConfigurationRefused"})
		if err == nil && len(all.Items) == 0 {
			return errors.New("there is none")
		}
		return err
	})
	for _, bad := range []struct{ text, want string }{
		{"pols: {reserved: \"3\"}\n", `ConfigMap trimtab/trimtab-node-n1:3: pols: unknown key; nearest valid key "pools"`},
		{"pools: {reserved: all}\n", "ConfigMap trimtab/trimtab-node-n1:3: pools.reserved"},
		{"cluster: {enabled: false}\n", "takes effect only in the node's own file"},
	} {
		c.put(configmaps.NodeMapName("n1"), "", bad.text)
		c.until(a, "refused: "+bad.want, func(n api.Node) bool { return strings.Contains(n.ConfigError, bad.want) })
		c.key(a, "pools.reserved", `"1"`, "ConfigMap trimtab/trimtab-node-n1")
	}
	c.put(configmaps.NodeMapName("n1"), "", "pools: {reserved: \"3\"}\n")
	c.key(a, "pools.reserved", `"3"`, "ConfigMap trimtab/trimtab-node-n1")
	c.until(a, "in force again", func(n api.Node) bool { return n.ConfigError == "" })

	// The file changes, with the ConfigMaps above it.
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(text, "failurePolicy: {hooks: [cpuset]}\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	c.key(a, "failurePolicy.hooks", `["cpuset"]`, file)
	c.key(a, "pools.reserved", `"3"`, "ConfigMap trimtab/trimtab-node-n1")

	c.put(configmaps.NodeMapName("n1"), "", "")
	c.key(a, "pools.reserved", `"0"`, file)
}

// TestConfigWithoutServer: an agent that starts while the API server is stopped uses its copy of the last
// configuration, and the API server's when that is back.
func TestConfigWithoutServer(t *testing.T) {
	t.Parallel()
	c := newConfigured(t)
	c.put(configmaps.ClusterMapName, "", "pools: {reserved: \"2\"}\nhttp: {address: \"127.0.0.1:1\"}\n")
	a, stop := c.agent()
	c.key(a, "pools.reserved", `"2"`, "ConfigMap trimtab/trimtab-cluster")
	c.Wait("it is logged", func(context.Context) error {
		if !strings.Contains(c.log.String(), "takes effect after a restart") {
			return errors.New(c.log.String())
		}
		return nil
	})
	stop()
	c.StopServer()
	c.keys = "strict: true\n"
	a, stop = c.agent()
	c.key(a, "pools.reserved", `"2"`, "ConfigMap trimtab/trimtab-cluster")
	c.key(a, "strict", "true", filepath.Join(c.dir, "config.yaml"))
	c.until(a, "it says so", func(n api.Node) bool {
		return n.Cluster.Config.From == "copy on this node" && n.Cluster.Error != "" && strings.Contains(n.Cluster.Config.Waiting, "configmaps")
	})
	c.StartServer()
	c.put(configmaps.ClusterMapName, "", "pools: {reserved: \"1\"}\n")
	c.key(a, "pools.reserved", `"1"`, "ConfigMap trimtab/trimtab-cluster")
	c.until(a, "it says so", func(n api.Node) bool { return n.Cluster.Config.From == "API server" && n.Cluster.Error == "" })

	// The agent does not trust a copy that was changed.
	stop()
	c.StopServer()
	kept := filepath.Join(c.dir, "state", "clusterconfig.json")
	text, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kept, bytes.Replace(text, []byte(`\"1\"`), []byte(`\"3\"`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	a, _ = c.agent()
	c.key(a, "pools.reserved", `""`, "default")
	if n := a.Source().Status(); n.Cluster.Config.From != "" {
		t.Errorf("config from %q", n.Cluster.Config.From)
	}
}

// TestConfigDuringServerErrors: while the API server answers with any error status, the agent keeps its configuration;
// afterwards it applies the newest.
func TestConfigDuringServerErrors(t *testing.T) {
	t.Parallel()
	c := newConfigured(t)
	proxy := controlplane.NewErrorProxy(t, c.Plane, "")
	c.kubeconfig = proxy.Kubeconfig
	c.put(configmaps.ClusterMapName, "", "pools: {reserved: \"0\"}\n")
	a, stop := c.agent()
	t.Cleanup(stop)
	c.key(a, "pools.reserved", `"0"`, "ConfigMap trimtab/trimtab-cluster")
	for i, code := range []int{http.StatusGone, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusConflict, http.StatusForbidden} {
		before := proxy.Requests.Load()
		proxy.Begin(code)
		c.until(a, fmt.Sprintf("%d is noted", code), func(n api.Node) bool { return n.Cluster.Error != "" })
		c.key(a, "pools.reserved", fmt.Sprintf("%q", fmt.Sprint(i)), "ConfigMap trimtab/trimtab-cluster")
		if i == 3 {
			break
		}
		c.put(configmaps.ClusterMapName, "", fmt.Sprintf("pools: {reserved: \"%d\"}\n", i+1))
		proxy.End()
		c.key(a, "pools.reserved", fmt.Sprintf("%q", fmt.Sprint(i+1)), "ConfigMap trimtab/trimtab-cluster")
		c.until(a, "reached", func(n api.Node) bool { return n.Cluster.Error == "" })
		if n := proxy.Requests.Load() - before; n > 60 {
			t.Errorf("status %d: %d requests: the agent does not back off", code, n)
		}
	}
	if n := a.Source().Status(); n.ConfigError != "" {
		t.Errorf("refused: %s", n.ConfigError)
	}
}

// TestConfigOfOtherSystems: Koordinator's NodeSLO and annotations of Node and NodeResourceTopology override the file,
// and the ConfigMaps override them. The agent reports a policy of nri-plugins, reads an object of 1.4 MB, and does not
// wait for a CRD that is not installed.
func TestConfigOfOtherSystems(t *testing.T) {
	t.Parallel()
	c := newConfigured(t)
	slo := schema.GroupVersionResource{Group: "slo.koordinator.sh", Version: "v1alpha1", Resource: "nodeslos"}
	balloons := schema.GroupVersionResource{Group: "config.nri", Version: "v1alpha1", Resource: "balloonspolicies"}
	c.crd(slo, "NodeSLO", "Cluster")
	c.crd(balloons, "BalloonsPolicy", "Namespaced")
	policy := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "config.nri/v1alpha1", "kind": "BalloonsPolicy", "metadata": map[string]any{"name": "default"}}}
	if _, err := c.admin.Resource(balloons).Namespace("trimtab").Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	classes := map[string]any{}
	for name, identity := range map[string]any{"lsrClass": int64(2), "lsClass": int64(1), "beClass": int64(-1)} {
		classes[name] = map[string]any{"cpuQOS": map[string]any{"enable": true, "groupIdentity": identity}}
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": map[string]any{"name": "n1"},
		"spec": map[string]any{"resourceQOSStrategy": classes, "extensions": map[string]any{"large": strings.Repeat("x", 1_400_000)}},
	}}
	if _, err := c.admin.Resource(slo).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := []byte(`{"metadata":{"annotations":{"node.koordinator.sh/cpu-normalization-ratio":"1.20"}}}`)
	if _, err := c.admin.Resource(nodesOf).Patch(t.Context(), "n1", "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.crd(nrts, "NodeResourceTopology", "Cluster")
	foreign := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": map[string]any{
		"name": "n1", "annotations": map[string]any{
			"node.koordinator.sh/cpu-shared-pools": `[{"socket":0,"node":0,"cpuset":"1-2"}]`, "kubelet.koordinator.sh/cpu-manager-policy": `{"policy":"none","reservedCPUs":"0"}`,
			"node.koordinator.sh/new": "x",
		},
	}}}
	if _, err := c.admin.Resource(nrts).Create(t.Context(), foreign, metav1.CreateOptions{FieldManager: "koordlet"}); err != nil {
		t.Fatal(err)
	}
	c.put(configmaps.ClusterMapName, "", "hooks: {groupIdentity: {be: 0}}\n")
	c.also = "koordinator, nri-plugins"
	a, _ := c.agent()
	c.key(a, "hooks.groupIdentity.enabled", "true", "NodeSLO n1")
	c.key(a, "hooks.groupIdentity.ls", "1", "NodeSLO n1")
	c.key(a, "hooks.groupIdentity.be", "0", "ConfigMap trimtab/trimtab-cluster")
	c.key(a, "hooks.normalization.ratio", `"1.20"`, "Node n1")
	c.key(a, "pools.shared", `"1-2"`, "NodeResourceTopology n1")
	c.key(a, "pools.reserved", `"0"`, "NodeResourceTopology n1")
	c.until(a, "not understood", func(n api.Node) bool {
		missing := strings.Join(n.Cluster.Config.NotUnderstood, ", ")
		return strings.Contains(missing, "NodeSLO n1: spec.extensions") && strings.Contains(missing, "BalloonsPolicy trimtab/default") && strings.Contains(missing, "node.koordinator.sh/new") && n.ConfigError == ""
	})

	patch = []byte(`{"spec":{"resourceQOSStrategy":{"lsClass":{"cpuQOS":{"groupIdentity":7}}}}}`)
	if _, err := c.admin.Resource(slo).Patch(t.Context(), "n1", "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.until(a, "refused", func(n api.Node) bool {
		return strings.Contains(n.ConfigError, "NodeSLO n1") && strings.Contains(n.ConfigError, "hooks.groupIdentity.ls")
	})
	c.key(a, "hooks.groupIdentity.ls", "1", "NodeSLO n1")
	if err := c.admin.Resource(slo).Delete(t.Context(), "n1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.key(a, "hooks.groupIdentity.ls", "2", "default")
	c.until(a, "in force again", func(n api.Node) bool { return n.ConfigError == "" })
}

// crd installs a CRD that accepts any fields.
func (c *configured) crd(r schema.GroupVersionResource, kind, scope string) {
	c.t.Helper()
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": r.Resource + "." + r.Group, "annotations": map[string]any{"api-approved.kubernetes.io": "unapproved, a test"}},
		"spec": map[string]any{
			"group": r.Group, "scope": scope, "names": map[string]any{"plural": r.Resource, "kind": kind},
			"versions": []any{map[string]any{
				"name": r.Version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if _, err := c.admin.Resource(crds).Create(c.t.Context(), definition, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	c.Wait(kind+" is served", func(ctx context.Context) error {
		_, err := c.admin.Resource(r).List(ctx, metav1.ListOptions{})
		return err
	})
}
