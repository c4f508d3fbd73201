// Package facts gathers what an event is decided by beyond what the runtime said of
// it: pod specs, what the kubelet granted, what hook servers want, records, and what
// cgroups allow. It decides nothing and writes nothing.
//
// Facts come in two steps. Gather waits for sources that take time, before the event
// has its turn and with no lock held. Read adds, within the turn, what is known or can
// be read at once: that must be of the moment of the decision.
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

// Options are what a gatherer is made of.
type Options struct {
	// Specs, Grants and HookServers are sources to wait for; nil for none.
	Specs       Specs
	Grants      Grants
	HookServers HookServers
	// Allowed returns the CPUs that a cgroup may use, as a kernel list.
	Allowed    func(dir string) (list string, ok bool)
	Tree       *cgroup.Tree // that the cgroups of pods and containers are looked for in
	Presence   *Presence
	State      State
	Signer     *record.Signer
	Checkpoint *record.Checkpoint
	// Renew decides a pod anew, by what is known of it now.
	Renew func(pod *lifecycle.Pod)
	// Fault counts a panic, by the hook that it was of; "" for none of them.
	Fault func(hook string)
	Log   *slog.Logger
}

// State gives the engine's state, which does not change until it is freed.
type State interface {
	Hold() *engine.State
	Free()
}

// Gathered is what was waited for.
type Gathered struct {
	Outside lifecycle.Outside
	// Problems are of what was not waited for to the end, where the event has no
	// container that shows them.
	Problems []lifecycle.Problem
	// Limit is how long the runtime waits for the answer; 0 where it does not say.
	Limit time.Duration

	refused error            // a hook server's
	past    *lifecycle.Event // hook servers are notified of it when it is over
}

// source is one place that facts come from.
type source struct {
	// key and what name, as a problem, that the event's time did not suffice for it.
	key, what string
	// await waits for what the event needs, and reports whether some is missing.
	await func(ctx context.Context, can *route.Capabilities, ev *lifecycle.Event, got *Gathered) (missing bool)
	// read adds what is known by now.
	read func(can *route.Capabilities, ev *lifecycle.Event, f *engine.Facts)
}

// Gatherer asks its sources about events.
type Gatherer struct {
	o       Options
	sources []source
	line    line
}

// New makes a gatherer.
func New(o Options) *Gatherer {
	g := &Gatherer{o: o, line: line{last: map[string]chan struct{}{}}}
	g.sources = []source{ // in the order in which they are asked
		{key: lifecycle.LateGrants, what: "what the kubelet granted the pod", await: g.awaitGrants, read: g.readGrants},
		{key: lifecycle.LateSpec, what: "the pod's spec", await: g.awaitSpec, read: g.readSpecs},
		{await: g.askHookServers},
		{read: g.readCgroups},
		{read: g.readRecords},
		{read: g.readCPUs},
		{read: g.readEnded},
	}
	return g
}

// Gather waits for what an event needs, with one budget for all sources. Events of one
// container are gathered and decided in the order in which they came. done is called
// when the event is over. The error is a hook server's refusal.
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
				Key: s.key, Warning: true, Reason: s.what + " was not waited for to the end: the time that the runtime gives an event was over",
				Then: "it is decided without, and anew when it is known",
			})
		}
	}
	if ev.Container != nil {
		got.Outside.Problems = append(late, got.Outside.Problems...)
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

// Of the time a runtime gives for an answer, so much may be waited for others. The
// rest is for deciding, the kernel and the way back.
const waitShare, ofShares = 3, 4

// bound bounds all that an event waits for together by what the runtime waits for its
// answer, which is returned too. free is called when nothing is waited for any more. A
// Synchronize is answered before it is done.
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

// put makes the map when it is needed: most events have none of these facts.
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

// eachContainer calls a function with every container of an event, which may replace it,
// and with its pod. A pod that was not told with them is empty.
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

// pick returns those of some pods that have not ended and pass a test.
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

// allPods are those that the state knows.
func allPods(s *engine.State) []*engine.Pod {
	return s.PodsWhere(anyPod)
}

func anyPod(*engine.Pod) bool { return true }
