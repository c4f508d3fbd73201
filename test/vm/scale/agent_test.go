package scale

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/kube"
	"github.com/trimtab/trimtab/internal/kube/condition"
	"github.com/trimtab/trimtab/internal/kube/events"
	"github.com/trimtab/trimtab/internal/kube/layers"
	"github.com/trimtab/trimtab/internal/kube/namespaces"
	"github.com/trimtab/trimtab/internal/kube/podreport"
	"github.com/trimtab/trimtab/internal/kube/publish"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/none"
	"github.com/trimtab/trimtab/internal/podspec"
	"github.com/trimtab/trimtab/internal/report/zones"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/test/vm/cluster/objects"
)

// attachment is the runtime of a simulated node: it carries every field.
type attachment struct{}

func (attachment) Name() string { return "simulated" }
func (attachment) Capabilities() conductor.Capabilities {
	all := lifecycle.FieldsWhere(func(lifecycle.Field) bool { return true })
	return conductor.Capabilities{Name: "simulated", Create: all, Update: all, Copy: all}
}

// agent has the parts of a simulated node's agent that use the API server: those that internal/agent makes
// for the chart's defaults, with their default times.
type agent struct {
	b        testing.TB
	name     string
	file     string // the agent's kubeconfig
	counts   *meter
	node     *conductor.Conductor
	tree     *kernel.Cgroups // of the node
	client   *kube.Client
	recorder *events.Recorder
	layers   *layers.Watch
	services []kube.Service
	specs    *podspec.Chain

	refused atomic.Pointer[string]
	taken   atomic.Pointer[taken]
}

// taken is the version of the cluster's ConfigMap that an agent uses, and since when.
type taken struct {
	version string
	at      time.Time
}

const cpus = 16

// newNode returns a conductor of a node with two NUMA nodes.
func newNode(b testing.TB) (*conductor.Conductor, *kernel.Cgroups) {
	b.Helper()
	var all []topology.CPU
	for i := range cpus {
		all = append(all, topology.CPU{ID: i, Core: i, Node: i * 2 / cpus, Package: i * 2 / cpus})
	}
	m, err := topology.New(all, nil)
	if err != nil {
		b.Fatal(err)
	}
	tree, err := kernel.NewCgroups(cgroup.V2, "0-15", "0-1")
	if err != nil {
		b.Fatal(err)
	}
	return conductor.New(conductor.Options{
		Machine: m, Keeper: keeper.New(&cgroup.Tree{FS: tree, Version: cgroup.V2}), Key: []byte("k"), Now: time.Now,
		Log: slog.New(slog.DiscardHandler),
		Policy: engine.Policy{
			Dialects: []string{"koordinator", "kubernetes"}, PlacementOn: true, Placement: none.Policy{},
			Pools: placement.Pools{Online: m.Online(), Shared: m.Online(), Reclaimed: m.Online()},
			Hooks: []hook.Hook{hook.CPUSetOptions{UnsetQuota: true}},
		},
	}), tree
}

// start makes an agent's parts that use the API server, with a separate connection.
func (a *agent) start() {
	c, err := kube.Connect(kube.Options{Kubeconfig: a.file, Node: a.name, Namespace: objects.Namespace, Version: "scale", Dial: a.counts.dial, Spread: 20 * time.Second})
	if err != nil {
		a.b.Fatal(err)
	}
	c.HTTP.Transport = counted{a.counts, c.HTTP.Transport}
	a.client, a.recorder, a.layers = c, events.NewRecorder(c), layers.New(c, nil, a.take)
	a.services = []kube.Service{
		publish.New(c, publish.Report{
			Kind:     "NodeResourceTopology",
			Resource: schema.GroupVersionResource{Group: "topology.node.k8s.io", Version: "v1alpha2", Resource: "noderesourcetopologies"},
			Key:      "zones", NewerField: "attributes", Ready: a.ready, Make: a.zones,
			Changed: func() <-chan struct{} {
				_, more := a.node.Journal().Since(math.MaxUint64)
				return more
			},
		}, publish.Pace{}),
		&namespaces.Service{Store: &namespaces.Store{}, Client: c, NeedsLabels: func() bool { return false }},
		a.recorder, podreport.NewProblemEvents(a.node, a.recorder), a.layers, condition.New(c, a.condition, condition.DefaultTiming()),
	}
	a.specs = podspec.New(podspec.Options{
		Sources: []podspec.SpecSource{podspec.NewAPIServer(podspec.APIServerOptions{URL: c.Server, Client: c.HTTP, Node: a.name, OnResult: c.RecordResult, Begin: c.AwaitFirstList})},
		Changed: func(uids []string) { a.node.Inform(uids) },
	})
}

// run runs the agent until ctx ends.
func (a *agent) run(ctx context.Context) error {
	if _, err := a.node.Handle(ctx, attachment{}, lifecycle.Event{Kind: lifecycle.Synchronize}); err != nil {
		return err
	}
	var running sync.WaitGroup
	running.Go(func() { _ = a.node.Run(ctx) })
	running.Go(func() { _ = a.specs.Run(ctx) })
	running.Go(func() { kube.Run(ctx, a.services...) })
	running.Wait()
	a.client.HTTP.CloseIdleConnections()
	return nil
}

func (a *agent) ready() (err error) {
	a.node.View(func(v *nodeview.View) {
		if v.Synced.IsZero() {
			err = errors.New("nothing is known of the runtime")
		}
	})
	return err
}

func (a *agent) zones() (map[string]string, map[string]any) {
	n := nodeview.Zones(a.node)
	return nil, n.NRT(zones.TopologyManager{Policy: "best-effort", Scope: "container"})
}

func (a *agent) condition() condition.State {
	if text := a.refused.Load(); text != nil {
		return condition.State{Status: "True", Reason: condition.ConfigurationRefused, Message: *text}
	}
	return condition.State{Status: "True", Reason: condition.Ready, Message: "a runtime is attached, and the agent knows its containers"}
}

// take notes which configuration the agent uses, and reports an invalid one.
func (a *agent) take(s layers.NodeLayers) {
	now := time.Now()
	err := s.Err
	if err == nil {
		_, _, err = config.Merge(s.Layers...)
	}
	before := a.refused.Swap(nil)
	if err != nil {
		text := err.Error()
		a.refused.Store(&text)
	}
	if text := a.refused.Load(); text != nil && (before == nil || *before != *text) {
		about := events.About{Kind: "ConfigMap", Namespace: objects.Namespace, Name: "trimtab-cluster"}
		about.UID, about.Version = a.layers.Identity(objects.Namespace + "/trimtab-cluster")
		a.recorder.Warn(about, events.ConfigurationRefused, *text)
	}
	t := &taken{at: now}
	for _, l := range s.Layers {
		t.version = l.Version
	}
	a.taken.Store(t)
}

// begin makes the node's runtime start a pod that owns a CPU. A malformed annotation causes an event.
func (a *agent) begin(ctx context.Context, p *lifecycle.Pod) error {
	if err := a.tree.MkdirRunc(dirOf(p)); err != nil {
		return err
	}
	for _, ev := range []lifecycle.Event{
		{Kind: lifecycle.RunPodSandbox, Pod: p},
		{Kind: lifecycle.CreateContainer, Pod: p, Container: containerOf(p)},
		{Kind: lifecycle.StartContainer, Pod: p, Container: containerOf(p)},
	} {
		if _, err := a.node.Handle(ctx, attachment{}, ev); err != nil {
			return err
		}
	}
	return nil
}

// end makes the node's runtime remove a pod.
func (a *agent) end(ctx context.Context, p *lifecycle.Pod) error {
	for _, ev := range []lifecycle.Event{
		{Kind: lifecycle.StopContainer, Pod: p, Container: containerOf(p)},
		{Kind: lifecycle.StopPodSandbox, Pod: p},
		{Kind: lifecycle.RemoveContainer, Pod: p, Container: containerOf(p)},
		{Kind: lifecycle.RemovePodSandbox, Pod: p},
	} {
		if _, err := a.node.Handle(ctx, attachment{}, ev); err != nil {
			return err
		}
	}
	return errors.Join(a.tree.Rmdir(dirOf(p)), a.tree.Rmdir(path.Dir(dirOf(p))))
}

// dirOf returns the cgroup directory of a pod's container.
func dirOf(p *lifecycle.Pod) string { return strings.TrimPrefix(containerOf(p).CgroupsPath, "/") }

func containerOf(p *lifecycle.Pod) *lifecycle.Container {
	return &lifecycle.Container{ID: "c-" + p.ID, PodID: p.ID, Name: "app", CgroupsPath: p.CgroupParent + "/c"}
}

// podOf converts a pod of the API server to a runtime's pod.
func podOf(name, uid string, annotations map[string]string) *lifecycle.Pod {
	return &lifecycle.Pod{
		ID: uid, Name: name, UID: uid, Namespace: "default", CgroupParent: "/kubepods/pod" + uid,
		Labels: map[string]string{intent.KoordQoSClass: "LSR"}, Annotations: annotations,
		Resources: &lifecycle.Resources{CPU: lifecycle.CPU{Quota: lifecycle.Some(int64(100000))}},
	}
}
