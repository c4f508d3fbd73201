package rights

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/kube"
	"github.com/trimtab/trimtab/internal/kube/condition"
	"github.com/trimtab/trimtab/internal/kube/events"
	"github.com/trimtab/trimtab/internal/kube/podreport"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/none"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/test/vm/controlplane"
)

// anything is an attachment that carries every field.
type anything struct{}

func (anything) Name() string { return "test" }
func (anything) Capabilities() conductor.Capabilities {
	all := lifecycle.FieldsWhere(func(lifecycle.Field) bool { return true })
	return conductor.Capabilities{Name: "test", Create: all, Update: all, Copy: all}
}

// silent discards metrics.
type silent struct{}

func (silent) Event(lifecycle.Kind, time.Duration, time.Duration) {}
func (silent) Refused(string)                                     {}
func (silent) HookError(string)                                   {}
func (silent) RuntimeUpdate(string)                               {}

// node returns a conductor for a node of four CPUs.
func node(t *testing.T) *conductor.Conductor {
	t.Helper()
	m, err := topology.New([]topology.CPU{{ID: 0}, {ID: 1}, {ID: 2, Node: 1}, {ID: 3, Node: 1}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	fake, err := kernel.NewCgroups(cgroup.V2, "0-3", "0-1")
	if err != nil {
		t.Fatal(err)
	}
	c := conductor.New(conductor.Options{
		Machine: m, Keeper: keeper.New(&cgroup.Tree{FS: fake, Version: cgroup.V2}), Key: []byte("k"), Now: time.Now,
		Recorder: silent{}, Log: slog.New(slog.DiscardHandler),
		Policy: engine.Policy{
			Dialects: []string{"koordinator", "kubernetes"}, PlacementOn: true, Placement: none.Policy{},
			Pools: placement.Pools{Online: m.Online(), Shared: m.Online(), Reclaimed: m.Online()},
			Hooks: []hook.Hook{hook.CPUSetOptions{UnsetQuota: true}},
		},
	})
	run(t, func(ctx context.Context) { _ = c.Run(ctx) })
	if _, err := c.Handle(t.Context(), anything{}, lifecycle.Event{Kind: lifecycle.Synchronize}); err != nil {
		t.Fatal(err)
	}
	return c
}

// run runs what until the test ends or the returned function is called.
func run(t *testing.T, what func(context.Context)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { what(ctx) })
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

// agent has the parts of n1's agent that use the API server, with its token.
type agent struct {
	p     *controlplane.Plane
	node  *conductor.Conductor
	to    *events.Recorder
	state atomic.Pointer[condition.State]
	parts []kube.StatusReporter
	stop  func()
}

func startAgent(t *testing.T, p *controlplane.Plane) *agent {
	t.Helper()
	return startAgentAt(t, p, p.Kubeconfig("agent", token(t, p, "Pod", "agent-n1")))
}

func startAgentAt(t *testing.T, p *controlplane.Plane, kubeconfig string) *agent {
	t.Helper()
	client, err := kube.Connect(kube.Options{Kubeconfig: kubeconfig, Node: "n1", Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{p: p, node: node(t), to: events.NewRecorder(client)}
	a.state.Store(&condition.State{Status: "True", Reason: condition.Ready, Message: "m"})
	troubles := podreport.NewProblemEvents(a.node, a.to)
	places := podreport.NewPlacements(a.node, client, func() bool { return a.state.Load().Status == "" })
	troubles.Debounce, places.Debounce = 10*time.Millisecond, 10*time.Millisecond
	keeps := condition.New(client, func() condition.State { return *a.state.Load() },
		condition.Timing{Poll: 20 * time.Millisecond, MaxStartWait: time.Millisecond, MaxChangeWait: time.Millisecond, Heartbeat: time.Hour})
	a.parts = []kube.StatusReporter{a.to, places, keeps}
	a.stop = run(t, func(ctx context.Context) { kube.Run(ctx, a.to, troubles, places, keeps) })
	return a
}

// create lets the agent decide for a container of the pod app-n1.
func (a *agent) create(t *testing.T, pod *lifecycle.Pod, name string) {
	t.Helper()
	for _, ev := range []lifecycle.Event{
		{Kind: lifecycle.RunPodSandbox, Pod: pod},
		{Kind: lifecycle.CreateContainer, Pod: pod, Container: &lifecycle.Container{ID: name, PodID: pod.ID, Name: name, CgroupsPath: "/kubepods/podu/" + name}},
	} {
		if _, err := a.node.Handle(t.Context(), anything{}, ev); err != nil {
			t.Fatal(err)
		}
	}
}

// about lists the events of a pod like kubectl describe.
func about(ctx context.Context, p *controlplane.Plane, uid string) (map[string]*unstructured.Unstructured, error) {
	l, err := of(p.Dynamic(controlplane.Admin), "Event", "default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + uid})
	if err != nil {
		return nil, err
	}
	out := map[string]*unstructured.Unstructured{}
	for i := range l.Items {
		reason, _, _ := unstructured.NestedString(l.Items[i].Object, "reason")
		out[reason] = &l.Items[i]
	}
	return out, nil
}

func get(t *testing.T, p *controlplane.Plane, kind, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	o, err := of(p.Dynamic(controlplane.Admin), kind, namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// conditionOf returns the condition of n1; nil if it has none.
func conditionOf(ctx context.Context, p *controlplane.Plane) map[string]any {
	n, err := of(p.Dynamic(controlplane.Admin), "Node", "").Get(ctx, "n1", metav1.GetOptions{})
	if err != nil {
		return nil
	}
	all, _, _ := unstructured.NestedSlice(n.Object, "status", "conditions")
	for _, c := range all {
		if m, ok := c.(map[string]any); ok && m["type"] == condition.Type {
			return m
		}
	}
	return nil
}

func (a *agent) condition(status, reason string) {
	a.p.Wait("the condition is "+status+" "+reason, func(ctx context.Context) error {
		c := conditionOf(ctx, a.p)
		if status == "" && c == nil || c != nil && c["status"] == status && c["reason"] == reason {
			return nil
		}
		return fmt.Errorf("it is %v", c)
	})
}

// TestReports: with the chart's rights an agent writes events, condition and annotation, also after the API server was
// stopped for a while.
func TestReports(t *testing.T) {
	p := plane(t)
	uid := string(get(t, p, "Pod", "default", "app-n1").GetUID())
	a := startAgent(t, p)
	pod := &lifecycle.Pod{
		ID: "p", Name: "app-n1", UID: uid, Namespace: "default", CgroupParent: "/kubepods/podu",
		Annotations: map[string]string{intent.KoordResourceStatus: `{"cpuset":"0-3"}`, "node.koordinator.sh/extended-resource-spec": "{"},
		Resources:   &lifecycle.Resources{CPU: lifecycle.CPU{Quota: lifecycle.Some(int64(200000))}},
	}
	a.create(t, pod, "one")
	a.condition("True", condition.Ready)
	p.Wait("events on the pod", func(ctx context.Context) error { return written(ctx, p, uid) })
	p.Wait("the annotation", func(context.Context) error {
		if got := get(t, p, "Pod", "default", "app-n1").GetAnnotations()[podreport.PlacementAnnotation]; !strings.Contains(got, `"one":{"cpus":"0-3"`) {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
	a.state.Store(&condition.State{Status: "False", Reason: condition.NotReady, Message: "no runtime"})
	a.condition("False", condition.NotReady)

	p.StopServer()
	a.state.Store(&condition.State{Status: "True", Reason: condition.ConfigurationRefused, Message: "line 3"})
	before := a.to.Counts()
	const many = 300
	for i := range many {
		a.to.Warn(events.About{Kind: "Pod", Namespace: "default", Name: fmt.Sprintf("gone-%d", i), UID: fmt.Sprint("u", i)}, events.HookFailed, "text")
	}
	if full := a.to.Counts()[events.ResultFull] - before[events.ResultFull]; full < many-256 || full > many-250 {
		t.Errorf("%d of %d events are counted as left out", full, many)
	}
	p.StartServer()
	a.condition("True", condition.ConfigurationRefused)
	p.Wait("events that waited", func(context.Context) error {
		if n := a.to.Counts()[events.ResultWritten] - before[events.ResultWritten]; n < 5 {
			return fmt.Errorf("%d were written: %v", n, a.to.Row())
		}
		return nil
	})
	a.state.Store(&condition.State{})
	a.condition("", "")
	a.stop()
	if c := conditionOf(t.Context(), p); c != nil {
		t.Errorf("after a release and a stop the condition is %v", c)
	}
}

// TestConditionOfStoppedAgent: an agent that ends sets the condition, and the next one continues with it.
func TestConditionOfStoppedAgent(t *testing.T) {
	p := plane(t)
	a := startAgent(t, p)
	a.condition("True", condition.Ready)
	a.stop()
	a.condition("Unknown", condition.Stopped)
	startAgent(t, p).condition("True", condition.Ready)
}

// TestConditionAfterRelease: a release removes the condition before it returns, independent of the check interval, and
// an agent that ends afterwards does not set it again.
func TestConditionAfterRelease(t *testing.T) {
	p := plane(t)
	client, err := kube.Connect(kube.Options{Kubeconfig: p.Kubeconfig("agent", token(t, p, "Pod", "agent-n1")), Node: "n1", Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	var state atomic.Pointer[condition.State]
	state.Store(&condition.State{Status: "True", Reason: condition.Ready, Message: "m"})
	keeps := condition.New(client, func() condition.State { return *state.Load() },
		condition.Timing{Poll: 20 * time.Millisecond, MaxStartWait: time.Millisecond, MaxChangeWait: time.Hour, Heartbeat: 2 * time.Hour})
	a := &agent{p: p, stop: run(t, func(ctx context.Context) { kube.Run(ctx, keeps) })}
	a.state.Store(state.Load())
	a.condition("True", condition.Ready)
	if err := kube.Release(t.Context(), keeps); err != nil {
		t.Fatal(err)
	}
	a.condition("True", condition.Ready) // the release restored nothing
	state.Store(&condition.State{})
	if err := kube.Release(t.Context(), keeps); err != nil {
		t.Fatal(err)
	}
	gone := func() {
		t.Helper()
		if c := conditionOf(t.Context(), p); c != nil {
			t.Errorf("the node has %v", c)
		}
	}
	gone()
	a.stop()
	gone()
}

// written returns what is wrong with the events of the pod.
func written(ctx context.Context, p *controlplane.Plane, uid string) error {
	all, err := about(ctx, p, uid)
	if err != nil {
		return err
	}
	for _, reason := range []events.Reason{events.RequestMalformed, events.RequestRefused} {
		e := all[string(reason)]
		if e == nil {
			return fmt.Errorf("no %s among %d", reason, len(all))
		}
		for field, want := range map[string]string{"reportingComponent": "trimtab", "reportingInstance": "n1", "type": "Warning"} {
			if got, _, _ := unstructured.NestedString(e.Object, field); got != want {
				return fmt.Errorf("%s of %s is %q", field, reason, got)
			}
		}
		if count, _, _ := unstructured.NestedInt64(e.Object, "count"); count < 1 {
			return fmt.Errorf("%s: count %d", reason, count)
		}
	}
	return nil
}
