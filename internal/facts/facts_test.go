package facts

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement/none"
	"github.com/trimtab/trimtab/internal/record"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// node is a node with a prepared state and cgroups.
type node struct {
	mu     sync.Mutex
	state  *engine.State
	kernel *kernel.Cgroups
	cpus   map[string]string // of cgroups, by directory
	log    bytes.Buffer
	now    time.Duration
}

func (n *node) Hold() *engine.State {
	n.mu.Lock()
	return n.state
}

func (n *node) Free() { n.mu.Unlock() }

func (n *node) allowed(dir string) (string, bool) {
	list, ok := n.cpus[dir]
	return list, ok
}

// make creates or removes a cgroup.
func (n *node) make(dir string, exists bool) {
	if exists {
		must(n.kernel.MkdirRunc(dir))
	} else {
		must(n.kernel.Rmdir(dir))
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// decide applies an event to the state.
func (n *node) decide(ev lifecycle.Event) {
	n.state.Commit(engine.Decide(n.state, &ev, engine.Facts{}))
}

func newNode(t *testing.T) (*node, Options) {
	t.Helper()
	m, err := describe.Parse("4c")
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := kernel.NewCgroups(cgroup.V2, "0-3", "0")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{cpus: map[string]string{}, kernel: kernel}
	n.make("kubepods", true)
	tree := &cgroup.Tree{FS: kernel, Version: cgroup.V2}
	n.state = engine.NewState(m, engine.Policy{Dialects: []string{"koordinator", "kubernetes"}, Placement: none.Policy{}})
	log := slog.New(slog.NewTextHandler(&n.log, nil))
	o := Options{
		AllowedCPUs: n.allowed, Tree: tree, State: n, Log: log, Signer: record.NewSigner([]byte("a key of a test")), Checkpoint: record.NewCheckpoint(nil, &n.mu, log),
		Presence:   NewPresence(tree, n, func() time.Time { return time.Unix(0, 0).Add(n.now) }, time.Second),
		CountPanic: func(string) {},
	}
	return n, o
}

// late is a source of specs, grants and answers that never answers in time.
type late struct{ asked []string }

func (l *late) wait(ctx context.Context, what string) {
	l.asked = append(l.asked, what)
	<-ctx.Done()
}

type lateSpecs struct{ *late }

func (l lateSpecs) Await(ctx context.Context, _ *lifecycle.Pod) { l.wait(ctx, "specs") }

func (lateSpecs) Spec(string) *lifecycle.PodSpec { return nil }

type lateServers struct {
	*late

	err      error
	notified []lifecycle.Kind
}

func (l *lateServers) Asks(lifecycle.Kind) bool { return true }

func (l *lateServers) Ask(ctx context.Context, _ *lifecycle.Event) (lifecycle.HookServerAnswer, error) {
	l.wait(ctx, "hook servers")
	return lifecycle.HookServerAnswer{Problems: []lifecycle.Problem{{Key: "server"}}}, l.err
}

func (l *lateServers) Notify(ev *lifecycle.Event) { l.notified = append(l.notified, ev.Kind) }

// TestBudget: the waits of an event end early enough for the rest of its work.
func TestBudget(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		within, call time.Duration
		kind         lifecycle.Kind
		limit        time.Duration
	}{
		"no end":        {kind: lifecycle.CreateContainer},
		"the runtime's": {within: 2 * time.Second, kind: lifecycle.CreateContainer, limit: 2 * time.Second},
		"the call's":    {call: time.Second, kind: lifecycle.UpdateContainer, limit: time.Second},
		"the sooner":    {within: 2 * time.Second, call: time.Second, kind: lifecycle.StartContainer, limit: time.Second},
		"a list":        {within: 2 * time.Second, call: time.Second, kind: lifecycle.Synchronize},
		"over":          {call: -time.Second, kind: lifecycle.CreateContainer, limit: time.Nanosecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if tt.call != 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.call)
					defer cancel()
				}
				bounded, limit, free := limitWaits(ctx, &route.Capabilities{AnswerTimeout: tt.within}, &lifecycle.Event{Kind: tt.kind})
				defer free()
				if limit != tt.limit {
					t.Errorf("the limit is %v, not %v", limit, tt.limit)
				}
				if end, ok := bounded.Deadline(); tt.limit > 0 && (!ok || time.Until(end) > tt.limit*waitNumerator/waitDenominator) {
					t.Errorf("it ends in %v", time.Until(end))
				}
			})
		})
	}
}

// TestGather: all sources share one budget, in their order. Sources without enough time are reported, and a
// refusal is effective if the event can still be refused.
func TestGather(t *testing.T) {
	t.Parallel()
	pod, ctr := &lifecycle.Pod{ID: "s", UID: "u", Name: "p"}, &lifecycle.Container{ID: "c", Name: "a"}
	stamps := lifecycle.FieldsWhere(func(f lifecycle.Field) bool { return f == lifecycle.Annotation })
	for name, tt := range map[string]struct {
		ev              lifecycle.Event
		create          lifecycle.FieldSet
		err             error
		asked           []string
		problems, onCtr []string
		refused         bool
		notified        []lifecycle.Kind
	}{
		"a pod": {
			ev:    lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: pod},
			asked: []string{"specs", "hook servers"}, problems: []string{lifecycle.MissingSpecKey}, onCtr: []string{"server"},
		},
		"a creation": {
			ev:    lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: ctr},
			asked: []string{"specs", "hook servers"}, onCtr: []string{lifecycle.MissingSpecKey, "server"},
		},
		"a refusal": {
			ev: lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: ctr}, create: stamps, err: errors.New("no"),
			asked: []string{"specs", "hook servers"}, onCtr: []string{lifecycle.MissingSpecKey, "server"}, refused: true,
		},
		"a refusal too late": {
			ev: lifecycle.Event{Kind: lifecycle.UpdateContainer, Pod: pod, Container: ctr}, err: errors.New("no"),
			asked: []string{"hook servers"}, onCtr: []string{"server", ""},
		},
		"a start beside": {
			ev:    lifecycle.Event{Kind: lifecycle.StartContainer, Pod: pod, Container: ctr},
			asked: []string{"hook servers"}, onCtr: []string{"server"}, notified: []lifecycle.Kind{lifecycle.PostStartContainer},
		},
		"an end": {
			ev:       lifecycle.Event{Kind: lifecycle.StopContainer, Pod: pod, Container: ctr},
			notified: []lifecycle.Kind{lifecycle.StopContainer},
		},
		"a list": {ev: lifecycle.Event{Kind: lifecycle.Synchronize, Pods: []*lifecycle.Pod{pod}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n, o := newNode(t)
				l := &late{}
				servers := &lateServers{late: l, err: tt.err}
				o.Specs, o.HookServers = lateSpecs{l}, servers
				g := New(o)
				start := time.Now()
				got, done, err := g.Gather(t.Context(), &route.Capabilities{Create: tt.create, AnswerTimeout: 2 * time.Second}, &tt.ev)
				if took := time.Since(start); took > 1500*time.Millisecond {
					t.Errorf("it took %v", took)
				}
				if (err != nil) != tt.refused {
					t.Error(err)
				}
				if d := cmp.Diff(tt.asked, l.asked); d != "" {
					t.Error(d)
				}
				if d := cmp.Diff(tt.problems, keys(got.Problems)); d != "" {
					t.Error(d)
				}
				if d := cmp.Diff(tt.onCtr, keys(got.HookServers.Problems)); d != "" {
					t.Error(d)
				}
				if len(servers.notified) > 0 {
					t.Error("servers were notified of what is not over")
				}
				done()
				if d := cmp.Diff(tt.notified, servers.notified); d != "" {
					t.Error(d)
				}
				if len(g.queue.lastEvent) > 0 {
					t.Errorf("%d containers are still in line\n%s", len(g.queue.lastEvent), n.log.String())
				}
			})
		})
	}
}

func keys(problems []lifecycle.Problem) []string {
	var out []string
	for _, p := range problems {
		out = append(out, p.Key)
	}
	return out
}

// TestPanicLeavesTheLine: a panic of a source affects only its own event.
func TestPanicLeavesTheLine(t *testing.T) {
	t.Parallel()
	_, o := newNode(t)
	g := New(o)
	g.sources = []source{{await: func(context.Context, *route.Capabilities, *lifecycle.Event, *GatheredFacts) bool { panic("ouch") }}}
	ev := lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: &lifecycle.Pod{}, Container: &lifecycle.Container{ID: "c"}}
	func() {
		defer func() { _ = recover() }()
		_, _, _ = g.Gather(t.Context(), &route.Capabilities{}, &ev)
	}()
	if len(g.queue.lastEvent) > 0 {
		t.Error("it is still in line")
	}
}

// TestLine: events of one container are handled one after another, in order; others do not wait, and no
// state of handled events is kept.
func TestLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := containerQueue{lastEvent: map[string]chan struct{}{}}
		of := func(id string) *lifecycle.Event { return &lifecycle.Event{Container: &lifecycle.Container{ID: id}} }
		var order []int
		first := l.enter(of("a"))
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() {
				defer l.enter(of("a"))()
				order = append(order, i)
			})
			synctest.Wait()
		}
		l.enter(of("b"))()
		l.enter(&lifecycle.Event{})()
		l.enter(of(""))()
		if len(order) > 0 {
			t.Errorf("%v did not wait", order)
		}
		first()
		all.Wait()
		if !slices.Equal(order, []int{0, 1, 2}) || len(l.lastEvent) > 0 {
			t.Errorf("they came as %v; %d are kept", order, len(l.lastEvent))
		}
	})
}

// TestRead: the facts that are read without waiting, by kind of event.
func TestRead(t *testing.T) { //nolint:tparallel // the parts of the test ask one node in turn
	t.Parallel()
	n, o := newNode(t)
	mine, err := o.Signer.Stamp("u", "a", lifecycle.Record{Version: lifecycle.RecordVersion, CPUs: "1"})
	if !err {
		t.Fatal(mine)
	}
	o.Checkpoint.SetRecord("late", lifecycle.Record{Version: lifecycle.RecordVersion})
	o.Checkpoint.SetGrants(map[string]string{"u": "1"}, nil)
	for dir, cpus := range map[string]string{"kubepods/podu": "0-2", "kubepods/podu/c": "1", "kubepods/podu/unread": "0-2", "kubepods/podu/late": "2"} {
		n.cpus[dir] = cpus
	}
	n.make("kubepods/podu", true)
	n.make("kubepods/podu/unread", true)
	g := New(o)
	pod := &lifecycle.Pod{ID: "s", UID: "u", Name: "p", CgroupParent: "/kubepods/podu"}
	ctr := func(id, record, unread string) *lifecycle.Container {
		c := &lifecycle.Container{ID: id, PodID: "s", Name: "a", CgroupsPath: "/kubepods/podu/" + id, Undescribed: unread}
		if unread != "" {
			c.CgroupsPath = ""
		}
		if record != "" {
			c.Annotations = map[string]string{"trimtab.io/record": record}
		}
		return c
	}
	owner, forged, nobody, kept, unread := ctr("c", mine, ""), ctr("c", "0 {}", ""), ctr("c", "", ""), ctr("late", "", ""), ctr("unread", "", "it is")
	stamping := route.Capabilities{Create: lifecycle.FieldsWhere(func(f lifecycle.Field) bool { return f == lifecycle.Annotation })}
	type want struct {
		Records, Distrusted, Parents, Kernel, Runs []string
		Grants                                     bool
	}
	for _, tt := range []struct {
		name string
		can  route.Capabilities
		kind lifecycle.Kind
		ctr  *lifecycle.Container
		want want
	}{
		{"a pod", stamping, lifecycle.RunPodSandbox, nil, want{Parents: []string{"s"}}},
		{"a creation", stamping, lifecycle.CreateContainer, nobody, want{}},
		{"a creation with a record", stamping, lifecycle.CreateContainer, owner, want{Records: []string{"c"}}},
		{"a forged record", stamping, lifecycle.CreateContainer, forged, want{Distrusted: []string{"c"}}},
		{"an update", stamping, lifecycle.UpdateContainer, kept, want{Records: []string{"late"}}},
		{"a start", stamping, lifecycle.StartContainer, owner, want{Records: []string{"c"}}},
		{"a start of one that is unread", stamping, lifecycle.StartContainer, unread, want{Runs: []string{"unread"}, Grants: true}},
		{"an end", stamping, lifecycle.StopContainer, owner, want{}},
		{"a list with an owner", stamping, lifecycle.Synchronize, owner, want{Records: []string{"c"}, Parents: []string{"s"}, Kernel: []string{"c"}, Grants: true}},
		{"a list without records", stamping, lifecycle.Synchronize, nobody, want{Parents: []string{"s"}, Grants: true}},
		{"where none are stamped", route.Capabilities{}, lifecycle.Synchronize, nobody, want{Parents: []string{"s"}, Kernel: []string{"c"}, Grants: true}},
		{"a list with a late record", route.Capabilities{}, lifecycle.Synchronize, kept, want{Records: []string{"late"}, Parents: []string{"s"}, Grants: true}},
		{"a list with a forged one", stamping, lifecycle.Synchronize, forged, want{Distrusted: []string{"c"}, Parents: []string{"s"}, Kernel: []string{"c"}, Grants: true}},
		{"a list with one unread", stamping, lifecycle.Synchronize, unread, want{Parents: []string{"s"}, Runs: []string{"unread"}, Grants: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ev := lifecycle.Event{Kind: tt.kind, Pod: pod, Container: tt.ctr}
			if tt.kind == lifecycle.Synchronize {
				ev = lifecycle.Event{Kind: tt.kind, Pods: []*lifecycle.Pod{pod, nil}, Containers: []*lifecycle.Container{tt.ctr, nil}}
			}
			var f engine.Facts
			g.Read(&tt.can, &ev, &f)
			got := want{sortedKeys(f.Records), sortedKeys(f.UntrustedRecords), sortedKeys(f.ParentCPUs), sortedKeys(f.KernelCPUs), sortedKeys(f.RunningCPUs), f.OwnedCPUs != nil}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
			if tt.ctr == unread && unread.CgroupsPath != "" {
				t.Error("the attachment's container was changed")
			}
		})
	}
}

func sortedKeys[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// TestOverlay: pods get the answers of hook servers, except records, and the attachment's own pods are not
// changed.
func TestOverlay(t *testing.T) {
	t.Parallel()
	_, o := newNode(t)
	g := New(o)
	o.Checkpoint.SetOverlay("s", record.Overlay{Labels: map[string]string{"a": "new"}, Annotations: map[string]string{"trimtab.io/record": "forged", "b": "c"}})
	pod := &lifecycle.Pod{ID: "s", Labels: map[string]string{"a": "old", "d": "e"}}
	other := &lifecycle.Pod{ID: "o"}
	ev := lifecycle.Event{Pods: []*lifecycle.Pod{nil, pod, other}}
	g.addAnswers(&ev)
	want := &lifecycle.Pod{ID: "s", Labels: map[string]string{"a": "new", "d": "e"}, Annotations: map[string]string{"b": "c"}}
	if d := cmp.Diff(want, ev.Pods[1]); d != "" {
		t.Error(d)
	}
	if ev.Pods[2] != other || pod.Labels["a"] != "old" {
		t.Error("another pod was changed")
	}
}

// TestPresence: only a cgroup that was seen can vanish, and only one that two searches did not find is a
// fault.
func TestPresence(t *testing.T) {
	t.Parallel()
	n, o := newNode(t)
	p := o.Presence
	pod := &lifecycle.Pod{ID: "s", UID: "u", Name: "p", Namespace: "n", CgroupParent: "/kubepods/podu"}
	n.decide(lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: pod})
	if p.NoteCgroup(pod); p.CgroupVanished("s", pod.CgroupParent) || len(p.EndedPods()) > 0 {
		t.Error("a pod that was never seen has vanished")
	}
	n.make("kubepods/podu", true)
	if len(p.EndedPods()) > 0 || !p.seenCgroups["s"] {
		t.Error("a pod that is there was not seen")
	}
	n.make("kubepods/podu", false)
	if got := p.EndedPods(); !p.CgroupVanished("s", pod.CgroupParent) || len(got) != 1 {
		t.Errorf("the pod is gone: %v", got)
	}
	n.make("kubepods/podu", true)
	n.decide(lifecycle.Event{Kind: lifecycle.Synchronize, Pods: []*lifecycle.Pod{pod}, Containers: []*lifecycle.Container{
		{ID: "c", PodID: "s", Name: "a", CgroupsPath: "/kubepods/podu/c", State: lifecycle.StateRunning},
	}})
	for _, step := range []struct {
		after  time.Duration
		exists bool
		faults int
	}{{0, false, 0}, {time.Second / 2, false, 0}, {time.Second, false, 1}, {time.Second, false, 1}, {time.Second, true, 0}} {
		n.now += step.after
		if step.exists {
			n.make("kubepods/podu/c", true)
		}
		if p.FindCgroups(); len(p.MissingCgroups()) != step.faults {
			t.Errorf("%v: %v", step, p.MissingCgroups())
		}
	}
	n.decide(lifecycle.Event{Kind: lifecycle.RemovePodSandbox, Pod: pod})
	if p.FindCgroups(); len(p.seenCgroups) > 0 {
		t.Errorf("kept of what has ended: %v", p.seenCgroups)
	}
}
