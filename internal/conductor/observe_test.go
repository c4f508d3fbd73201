package conductor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/none"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/sim/clock"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/topology"
)

// notes is a Recorder that stores its calls, also those of the queue.
type notes struct {
	mu  sync.Mutex
	got []string
}

func (n *notes) add(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.got = append(n.got, what)
}

func (n *notes) Event(k lifecycle.Kind, took, decision time.Duration) {
	if took < decision || decision <= 0 {
		n.add(fmt.Sprintf("bad times of %v: %v of %v", k, decision, took))
	}
	n.add("event " + k.String())
}
func (n *notes) Refused(kind string)         { n.add("refused " + kind) }
func (n *notes) HookError(hook string)       { n.add("hook " + hook) }
func (n *notes) RuntimeUpdate(result string) { n.add("update " + result) }

// faulty is a hook that panics.
type faulty struct{}

func (faulty) Info() hook.Info                   { return hook.Info{Name: "faulty"} }
func (faulty) Propose(*hook.Input, *hook.Output) { panic("planted") }

type anything struct{}

func (anything) Name() string { return "test" }
func (anything) Capabilities() Capabilities {
	all := lifecycle.FieldsWhere(func(lifecycle.Field) bool { return true })
	return Capabilities{Name: "test", Create: all, Update: all, Copy: all}
}

type refusing struct{ err error }

func (r refusing) Update(_ context.Context, what []Settings) ([]string, error) {
	return []string{what[0].Container}, r.err
}
func (refusing) About() string { return "a runtime" }

// observed is a conductor whose clock advances at every reading.
func observed(t *testing.T, strict bool) (*Conductor, *notes, *bytes.Buffer) {
	t.Helper()
	m, err := topology.New([]topology.CPU{{ID: 0}, {ID: 1}, {ID: 2, Node: 1}, {ID: 3, Node: 1}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	fake, err := kernel.NewCgroups(cgroup.V2, "0-3", "0-1")
	if err != nil {
		t.Fatal(err)
	}
	var ticks atomic.Int64
	n, log := &notes{}, &bytes.Buffer{}
	return New(Options{
		Machine: m, Keeper: keeper.New(&cgroup.Tree{FS: fake, Version: cgroup.V2}), Key: []byte("k"), Recorder: n,
		Log: slog.New(slog.NewTextHandler(log, nil)),
		Now: func() time.Time { return time.Unix(1000, ticks.Add(1000)) },
		Policy: engine.Policy{
			Strict: strict, Dialects: []string{"koordinator", "katalyst", "kubernetes"}, PlacementOn: true, Placement: none.Policy{},
			Pools: placement.Pools{Online: m.Online(), Shared: m.Online(), Reclaimed: m.Online()},
			Hooks: []hook.Hook{hook.CPUSetOptions{UnsetQuota: true}, faulty{}},
		},
	}), n, log
}

func handle(t *testing.T, c *Conductor, ev lifecycle.Event) (Answer, error) {
	t.Helper()
	defer c.Flush()
	return c.Handle(t.Context(), anything{}, ev)
}

func testPod(annotations map[string]string) *lifecycle.Pod {
	return &lifecycle.Pod{ID: "p", Name: "db", UID: "u", Namespace: "shop", CgroupParent: "/kubepods/podu", Annotations: annotations,
		Resources: &lifecycle.Resources{CPU: lifecycle.CPU{Quota: lifecycle.Some(int64(200000))}}}
}

// TestJournalFollows: a creation is answered before it is in the journal, and appears there a
// moment later.
func TestJournalFollows(t *testing.T) {
	t.Parallel()
	c, _, _ := observed(t, false)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = c.Run(ctx) })
	defer running.Wait()
	defer stop()
	ev := lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: testPod(nil), Container: &lifecycle.Container{ID: "c", Name: "main"}}
	if _, err := c.Handle(t.Context(), anything{}, ev); err != nil {
		t.Fatal(err)
	}
	for {
		events, more := c.Journal().Since(0)
		if len(events) == 1 && events[0].Kind == "CreateContainer" {
			return
		}
		select {
		case <-more:
		case <-time.After(time.Minute):
			t.Fatalf("the journal has %v", events)
		}
	}
}

func TestRecorder(t *testing.T) {
	c, n, log := observed(t, false)
	if _, err := handle(t, c, lifecycle.Event{Kind: lifecycle.Synchronize}); err != nil {
		t.Fatal(err)
	}
	p := testPod(map[string]string{intent.KoordResourceStatus: `{"cpuset":"2-3"}`, "node.koordinator.sh/extended-resource-spec": "{"})
	_, _ = handle(t, c, lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: p})
	ctr := &lifecycle.Container{ID: "c", PodID: "p", Name: "pg", CgroupsPath: "/kubepods/podu/c"}
	ans, _ := handle(t, c, lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: p, Container: ctr})
	if ans.Op.String() != "00000003" {
		t.Errorf("op of the third event is %v", ans.Op)
	}
	want := []string{
		"event Synchronize",
		"event RunPodSandbox", "refused annotation", "hook faulty",
		"event CreateContainer", "hook faulty",
	}
	if d := cmp.Diff(want, n.got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	line := regexp.MustCompile(`msg="the agent decided about an event" op=00000003 event=CreateContainer pod=db ns=shop container=pg cpus=2-3 values=\d+ changed=`)
	if !line.Match(log.Bytes()) {
		t.Errorf("no line about the creation in\n%s", log)
	}
	for l := range strings.Lines(log.String()) {
		if i := strings.Index(l, " err="); i >= 0 && strings.Contains(l[i+5:], "=") {
			t.Errorf("err is not last in %s", l)
		}
	}
	events, _ := c.Journal().Since(2)
	if len(events) != 1 || events[0].Op != "00000003" {
		t.Errorf("journal: %+v", events)
	}
}

func TestRecorderOfARefusal(t *testing.T) {
	c, n, log := observed(t, true)
	p := testPod(map[string]string{"node.koordinator.sh/extended-resource-spec": "{"})
	_, _ = handle(t, c, lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: p})
	n.got = nil
	_, err := handle(t, c, lifecycle.Event{
		Kind: lifecycle.CreateContainer, Pod: p, Container: &lifecycle.Container{ID: "c", PodID: "p", Name: "pg", CgroupsPath: "/x/c"},
	})
	if r := (*Rejection)(nil); !errors.As(err, &r) {
		t.Fatalf("got %v", err)
	}
	if d := cmp.Diff([]string{"refused request", "event CreateContainer"}, n.got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if !strings.Contains(log.String(), `msg="the agent refused a request of the runtime" op=00000002 event=CreateContainer pod=db ns=shop container=pg err=`) {
		t.Errorf("log:\n%s", log)
	}
}

func TestRuntimeUpdateResults(t *testing.T) {
	for _, tc := range []struct {
		failed []string
		err    error
		want   string
	}{
		{nil, nil, nodeview.UpdateDone}, {[]string{"c"}, nil, nodeview.UpdateRefused}, {nil, errors.New("gone"), nodeview.UpdateFailed},
	} {
		if got := resultOfUpdate(tc.failed, tc.err); got != tc.want {
			t.Errorf("%v, %v: %s, want %s", tc.failed, tc.err, got, tc.want)
		}
	}
}

func TestSummary(t *testing.T) {
	c, _, _ := observed(t, false)
	if nodeview.Ready(c) == nil {
		t.Error("ready without a runtime")
	}
	c.Attached(anything{}, refusing{})
	if err := nodeview.Ready(c); err == nil || !strings.Contains(err.Error(), "not applied yet") {
		t.Errorf("ready before a Synchronize: %v", err)
	}
	_, _ = handle(t, c, lifecycle.Event{Kind: lifecycle.Synchronize})
	if err := nodeview.Ready(c); err != nil {
		t.Error(err)
	}
	p := testPod(map[string]string{intent.KoordResourceStatus: `{"cpuset":"2-3"}`})
	p.Labels = map[string]string{intent.KoordQoSClass: "LSR"}
	_, _ = handle(t, c, lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: p})
	_, _ = handle(t, c, lifecycle.Event{
		Kind: lifecycle.CreateContainer, Pod: p, Container: &lifecycle.Container{ID: "c", PodID: "p", Name: "pg", CgroupsPath: "/kubepods/podu/c"},
	})
	s := nodeview.Summary(c)
	s.LastSync = s.LastSync.Truncate(time.Second)
	want := api.Summary{
		Attached: true, Exclusive: 2, LastSync: time.Unix(1000, 0),
		Classes:   map[string]int{"none": 0, "system": 0, "dedicated": 1, "shared": 0, "reclaimed": 0},
		Unapplied: map[api.MissingReason]int{api.NotYet: 1}, // the pod's quota: no cgroup yet
		Kernel:    map[string]uint64{"pending": 1},
		Specs: map[lifecycle.Source]int{
			lifecycle.FromPodsAPI: 0, lifecycle.FromKubelet: 0, lifecycle.FromAPIServer: 0, lifecycle.FromNothing: 1,
		},
		Pools: []api.PoolSize{
			{Pool: "bound", Node: 0}, {Pool: "bound", Node: 1}, {Pool: "named", Node: 0}, {Pool: "named", Node: 1},
			{Pool: "reclaimed", Node: 0, CPUs: 2}, {Pool: "reclaimed", Node: 1},
			{Pool: "reserved", Node: 0}, {Pool: "reserved", Node: 1},
			{Pool: "rest", Node: 0, CPUs: 2}, {Pool: "rest", Node: 1},
			{Pool: "shared", Node: 0, CPUs: 2}, {Pool: "shared", Node: 1},
		},
		PoolMembers: map[string]int{"rest": 0, "system": 0, "named": 0, "bound": 0, "shared": 0, "reclaimed": 0},
	}
	if d := cmp.Diff(want, s); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	c.Detached(anything{}, errors.New("gone"))
	if nodeview.Ready(c) == nil {
		t.Error("ready without a runtime")
	}
}

func TestAlive(t *testing.T) {
	c, _, _ := observed(t, false)
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Alive(soon); err != nil {
		t.Error(err)
	}
	c.node.mu.Lock()
	err := c.Alive(soon)
	c.node.mu.Unlock()
	if err == nil {
		t.Error("alive while nobody can have its lock")
	}
	w := c.newWork(anything{}, &lifecycle.Event{})
	c.eventMu.Lock()
	c.beginEvent(w)
	if err := c.Alive(t.Context()); err != nil || w.report.Op == 0 {
		t.Errorf("an event under way is no fault: %v", err)
	}
	c.eventTimes.eventStart.Store(c.eventTimes.nanosecondsSinceStart(c.now().Add(-2 * stuckAfter)))
	if err := c.Alive(t.Context()); err == nil || !strings.Contains(err.Error(), "handling an event for 4m0s") {
		t.Errorf("got %v", err)
	}
	c.endEvent(w)
	if err := c.Alive(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestAliveThroughSteps steps the wall clock during an event: only elapsed time makes it count
// as stuck.
func TestAliveThroughSteps(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, time.Hour} {
		c, _, _ := observed(t, false)
		clk := clock.New(func() time.Time { return time.Unix(1e9, 0) })
		c.now, c.eventTimes.zeroTime = clk.Now, clk.Now()
		w := c.newWork(anything{}, &lifecycle.Event{})
		c.eventMu.Lock()
		c.beginEvent(w)
		clk.Step(step)
		if err := c.Alive(t.Context()); err != nil {
			t.Errorf("a step by %v: %v", step, err)
		}
		clk.Advance(2 * stuckAfter)
		if err := c.Alive(t.Context()); err == nil || !strings.Contains(err.Error(), "handling an event for 4m0s") {
			t.Errorf("a step by %v: an event that never ends: %v", step, err)
		}
		c.endEvent(w)
	}
}

// TestReadyAfterAPanic: a Synchronize whose decision panicked does not make the agent ready.
func TestReadyAfterAPanic(t *testing.T) {
	c, n, _ := observed(t, false)
	c.Attached(anything{}, refusing{})
	state := c.node.state
	c.node.state = nil // planted: deciding panics
	_, _ = handle(t, c, lifecycle.Event{Kind: lifecycle.Synchronize, Pods: []*lifecycle.Pod{testPod(nil)}})
	if nodeview.Ready(c) == nil {
		t.Error("ready, though nothing was taken over")
	}
	if n.got[0] != "hook none" {
		t.Errorf("the panic was not counted: %v", n.got)
	}
	c.node.state = state
	_, _ = handle(t, c, lifecycle.Event{Kind: lifecycle.Synchronize, Pods: []*lifecycle.Pod{testPod(nil)}})
	if err := nodeview.Ready(c); err != nil {
		t.Error(err)
	}
}

// older is an attachment to a runtime that does not know OOM scores.
type older struct{}

func (older) Name() string { return "nri" }
func (older) Capabilities() Capabilities {
	can := anything{}.Capabilities()
	can.Name, can.RuntimeName = "nri", "containerd v1.7.20 (NRI v0.6.1)"
	can.Create = can.Create.Without(lifecycle.OOMScoreAdj)
	return can
}

// TestUnsupportedFieldIsNotSent: a value that the runtime would ignore is not sent to it, and is
// reported as not in force.
func TestUnsupportedFieldIsNotSent(t *testing.T) {
	for _, from := range []Carrier{anything{}, older{}} {
		c, _, _ := observed(t, false)
		c.node.state.Policy.Hooks = []hook.Hook{hook.OOMScoreOptions{}}
		c.node.state.Policy.Rules = intent.Rules{{Kinds: []intent.Kind{intent.OOMScore}, Namespaces: []string{"*"}, Decision: intent.Allow}}
		p := testPod(map[string]string{intent.KoordOOMScore: "500"})
		ans, err := c.Handle(t.Context(), from, lifecycle.Event{
			Kind: lifecycle.CreateContainer, Pod: p, Container: &lifecycle.Container{ID: "c", PodID: "p", Name: "pg", CgroupsPath: "/kubepods/podu/c"},
		})
		if err != nil {
			t.Fatal(err)
		}
		sent := slices.ContainsFunc(ans.Values, func(v lifecycle.Value) bool { return v.Field == lifecycle.OOMScoreAdj })
		all, _ := nodeview.Explain(c, "shop", "db", "pg")
		v := all[0].Values[0]
		if obeys := from.Capabilities().Create.Has(lifecycle.OOMScoreAdj); sent != obeys || v.Field != "oom.score" || v.Applied != obeys {
			t.Errorf("%s: sent %v, explained as %+v", from.Name(), sent, v)
		}
		const why = "nri cannot set oom.score when a container is created: the runtime is containerd v1.7.20 (NRI v0.6.1)"
		if !sent && (v.Note != why || nodeview.Summary(c).Unapplied[api.NotCarried] != 1) {
			t.Errorf("reported as %q, %v", v.Note, nodeview.Summary(c).Unapplied)
		}
	}
}
