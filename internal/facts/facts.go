// Package facts gathers what a decision needs besides the runtime's report: pod specs, the
// kubelet's grants, hook servers' answers, records, and the CPUs that cgroups allow. It decides
// nothing and writes nothing.
//
// It has two steps. Gather waits for sources that take time, before the event has its turn and
// with no lock held. Read runs during the turn, and adds facts that are known already or can be
// read at once.
package facts

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/record"
)

// Options are the sources and callbacks of a gatherer.
type Options struct {
	// Specs, Grants and HookServers are the sources that Gather waits for; nil for none.
	Specs       Specs
	Grants      Grants
	HookServers HookServers
	// Plugins are resource plugins; nil for none.
	Plugins ResourcePlugins
	// Ahead: pods are decided before a runtime reports them.
	Ahead bool
	// Allowed returns the CPUs that a cgroup may use, as a kernel list.
	Allowed  func(dir string) (list string, ok bool)
	Tree     *cgroup.Tree // the tree with the cgroups of pods and containers
	Presence *Presence
	// HasInterface reports whether the host has a network interface; nil if that is not known of any.
	HasInterface func(name string) (has, known bool)
	State        State
	Signer       *record.Signer
	Checkpoint   *record.Checkpoint
	// Renew decides a pod again with its current facts.
	Renew func(pod *lifecycle.Pod)
	// Fault counts a panic, by its hook; "" if no hook caused it.
	Fault func(hook string)
	Log   *slog.Logger
}

// State gives access to the engine's state, which does not change until it is freed.
type State interface {
	Hold() *engine.State
	Free()
}

// Gathered is the result of Gather.
type Gathered struct {
	HookServers lifecycle.HookServerAnswer
	// Problems name the waits that were cut short, if the event has no container to report
	// them.
	Problems []lifecycle.Problem
	// Limit is how long the runtime waits for the answer; 0 if it does not say.
	Limit time.Duration

	refused    error            // the refusal of a hook server or resource plugin
	unanswered bool             // resource plugins were not asked to allocate
	past       *lifecycle.Event // hook servers are notified of it at the end of the event
}

// source is one source of facts.
type source struct {
	// key and what describe the source in the problem of a wait that was cut short.
	key, what string
	// await waits for what the event needs, and reports whether some of it is missing.
	await func(ctx context.Context, can *route.Capabilities, ev *lifecycle.Event, got *Gathered) (missing bool)
	// read adds what is known now.
	read func(can *route.Capabilities, ev *lifecycle.Event, f *engine.Facts)
}

// Gatherer asks its sources about events.
type Gatherer struct {
	o       Options
	sources []source
	line    containerQueue
}

// New makes a gatherer.
func New(o Options) *Gatherer {
	g := &Gatherer{o: o, line: containerQueue{last: map[string]chan struct{}{}}}
	g.sources = []source{ // in the order of their calls
		{key: lifecycle.LateGrants, what: "the kubelet's grants for the pod", await: g.awaitGrants, read: g.readGrants},
		{key: lifecycle.LateSpec, what: "the pod's spec", await: g.awaitSpec, read: g.readSpecs},
		{await: g.askHookServers},
		{await: g.askPlugins, read: g.readPlugins},
		{read: g.readCgroups},
		{read: g.readRecords},
		{read: g.readCPUs},
		{read: g.readInterfaces},
		{read: g.readEnded},
	}
	return g
}

// Gather waits for what an event needs, with one time budget for all sources. Events of one
// container are gathered and decided in the order of their arrival. The caller calls done at
// the end of the event. The error is a hook server's refusal.
func (g *Gatherer) Gather(ctx context.Context, can *route.Capabilities, ev *lifecycle.Event) (got Gathered, done func(), err error) {
	ctx, limit, free := bound(ctx, can, ev)
	defer free()
	got.Limit = limit
	leave, whole := g.line.enter(ev), false
	defer func() {
		if !whole { // a panic
			leave()
		}
	}()
	var late []lifecycle.Problem
	for _, s := range g.sources {
		if s.await != nil && s.await(ctx, can, ev, &got) && ctx.Err() != nil {
			late = append(late, lifecycle.Problem{
				Key: s.key, Warning: true, Reason: s.what + " came too late: the runtime's time limit for the event was over",
				Then: "the event is decided without it, and again when it is known",
			})
		}
	}
	if ev.Container != nil {
		got.HookServers.Problems = append(late, got.HookServers.Problems...)
	} else {
		got.Problems = late
	}
	whole = true
	return got, func() {
		leave()
		if got.past != nil {
			g.o.HookServers.Notify(got.past)
		}
	}, got.refused
}

// Read adds to an event's facts what is known or can be read at once.
func (g *Gatherer) Read(can *route.Capabilities, ev *lifecycle.Event, f *engine.Facts) {
	for _, s := range g.sources {
		if s.read != nil {
			s.read(can, ev, f)
		}
	}
}

// waitShare of ofShares of a runtime's time limit may be spent on waits. The rest is for the
// decision, the kernel and the answer.
const waitShare, ofShares = 3, 4

// bound limits the waits of an event by the runtime's time limit, which it returns, too. The
// caller calls free after the last wait. A Synchronize is answered before it is decided, so it
// has no limit.
func bound(ctx context.Context, can *route.Capabilities, ev *lifecycle.Event) (bounded context.Context, limit time.Duration, free func()) {
	if ev.Kind == lifecycle.Synchronize {
		return ctx, 0, func() {}
	}
	limit = can.AnswersWithin
	if end, bounded := ctx.Deadline(); bounded {
		if left := time.Until(end); limit <= 0 || left < limit {
			limit = max(left, time.Nanosecond)
		}
	}
	if limit <= 0 {
		return ctx, 0, func() {}
	}
	ctx, free = context.WithTimeout(ctx, limit*waitShare/ofShares)
	return ctx, limit, free
}

// put makes the map when it is needed, since most events have none of these facts.
func put[V any](m *map[string]V, key string, v V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[key] = v
}

// eachPod calls a function with every pod of an event, which may replace it.
func eachPod(ev *lifecycle.Event, do func(p **lifecycle.Pod)) {
	if ev.Pod != nil {
		do(&ev.Pod)
	}
	for i := range ev.Pods {
		if ev.Pods[i] != nil {
			do(&ev.Pods[i])
		}
	}
}

// eachContainer calls a function with every container of an event, which may replace it, and
// with its pod, which is empty if the event does not have it.
func eachContainer(ev *lifecycle.Event, do func(p *lifecycle.Pod, ctr **lifecycle.Container)) {
	if ev.Pod != nil && ev.Container != nil {
		do(ev.Pod, &ev.Container)
		return
	}
	pods := map[string]*lifecycle.Pod{}
	eachPod(ev, func(p **lifecycle.Pod) { pods[(*p).ID] = *p })
	for i, ctr := range ev.Containers {
		if ctr != nil {
			do(cmp.Or(pods[ctr.PodID], &lifecycle.Pod{}), &ev.Containers[i])
		}
	}
}

// pick returns the pods that have not ended and meet a condition.
func (g *Gatherer) pick(of func(*engine.State) []*engine.Pod, test func(*engine.Pod) bool) []*lifecycle.Pod {
	defer g.o.State.Free()
	var out []*lifecycle.Pod
	for _, p := range of(g.o.State.Hold()) {
		if p != nil && !p.Stopped && test(p) {
			out = append(out, p.Pod)
		}
	}
	return out
}

// allPods returns the pods in the state.
func allPods(s *engine.State) []*engine.Pod {
	return s.PodsWhere(anyPod)
}

func anyPod(*engine.Pod) bool { return true }
