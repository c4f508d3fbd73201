// Package facts gathers what a decision needs besides the runtime's report: pod specs, the
// kubelet's grants, hook servers' answers, records, and the CPUs that cgroups allow. It decides
// nothing and writes nothing.
//
// Facts of an event are gathered in two steps. Gather runs before the agent decides the event. It waits for slow
// sources, and holds no lock. Read runs when the agent decides the event, and adds facts that are known already or can
// be read at once.
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
	// Claims is the source of the CPUs that resource claims give to containers; nil for none.
	Claims Claims
	// DecidesAhead means that the agent chooses CPUs for pods before a runtime reports the pods (Expect events).
	DecidesAhead bool
	// AllowedCPUs returns the CPUs that a cgroup may use, as a kernel list. The result ok is false if the CPUs cannot
	// be read.
	AllowedCPUs func(dir string) (list string, ok bool)
	Tree        *cgroup.Tree // the tree with the cgroups of pods and containers
	Presence    *Presence    // knows which of these cgroups exist
	// HasInterface reports whether the host has a network interface. The result known is false if the interfaces cannot
	// be read. HasInterface is nil if the interfaces of the host are never known.
	HasInterface func(name string) (has, known bool)
	// NodeDevices returns the devices that the node's CDI specifications name; nil for none.
	NodeDevices func() []lifecycle.NodeDevice
	// FormerAgent is another agent from which this agent takes over; nil for none.
	FormerAgent FormerAgent
	State       State              // the engine's state
	Signer      *record.Signer     // checks the signatures of the records in annotations
	Checkpoint  *record.Checkpoint // has the records that are not in annotations
	// DecideAgain decides a pod again with its current facts.
	DecideAgain func(pod *lifecycle.Pod)
	// CountPanic counts a panic under the name of the hook that caused it; "" if no hook did.
	CountPanic func(hook string)
	Log        *slog.Logger
}

// State gives access to the engine's state. Hold locks the state and returns it. The state does not change until Free.
type State interface {
	// Hold locks the state and returns it. It waits until the state is not locked.
	Hold() *engine.State
	// Free unlocks the state.
	Free()
}

// GatheredFacts is the result of Gather.
type GatheredFacts struct {
	// HookServers has the merged answers of hook servers and resource plugins.
	HookServers lifecycle.HookServerAnswer
	// Problems has a problem for each source whose information did not come in time, if the event has no container. If
	// the event has a container, HookServers.Problems has these problems.
	Problems []lifecycle.Problem
	// TimeLimit is how long the runtime waits for the answer; 0 if there is no limit.
	TimeLimit time.Duration

	refusal      error            // the refusal of a hook server or resource plugin
	notAllocated bool             // the engine would refuse the container, so plugins were not asked to allocate
	notifyAtEnd  *lifecycle.Event // what hook servers are notified of when the gathered event ends; nil for nothing
}

// source is one source of facts.
type source struct {
	// key and description name the source in a problem. This problem reports that the source's information did not come
	// in time.
	key, description string
	// await waits for the information that the event needs from the source, and reports whether some of the information
	// is still missing. It is nil if the source needs no wait.
	await func(ctx context.Context, can *route.Capabilities, ev *lifecycle.Event, got *GatheredFacts) (missing bool)
	// read adds the facts of the source that are known now; nil if the source only waits.
	read func(can *route.Capabilities, ev *lifecycle.Event, f *engine.Facts)
}

// Gatherer asks its sources about events.
type Gatherer struct {
	o          Options
	sources    []source
	queue      containerQueue // makes events of one container wait for each other
	missedPods missedPods     // pods that Inform could not decide again
}

// New makes a gatherer.
func New(o Options) *Gatherer {
	g := &Gatherer{o: o, queue: containerQueue{lastEvent: map[string]chan struct{}{}}}
	g.sources = []source{ // called in this order
		{await: g.rereadClaims}, // first, because the next sources ask which pods have claims
		{key: lifecycle.MissingGrantsKey, description: "the kubelet's grants for the pod", await: g.awaitGrants, read: g.readGrants},
		{key: lifecycle.MissingSpecKey, description: "the pod's spec", await: g.awaitSpec, read: g.readSpecs},
		{await: g.awaitClaims, read: g.readClaims},
		{await: g.askHookServers},
		{await: g.askPlugins, read: g.readPlugins},
		{read: g.readCgroups},
		{read: g.readRecords}, // before readFormerAgent: here only a simulated takeover has set FormerAgent
		{read: g.readFormerAgent},
		{read: g.readCPUs},
		{read: g.readInterfaces},
		{read: g.readDevices},
		{read: g.readEndedPods},
	}
	return g
}

// Gather waits for what an event needs, with one time limit for all sources. Events of one container are gathered
// and decided in the order of their arrival. The caller calls done at the end of the event. The error is a refusal
// by a hook server or resource plugin.
func (g *Gatherer) Gather(ctx context.Context, can *route.Capabilities, ev *lifecycle.Event) (got GatheredFacts, done func(), err error) {
	ctx, limit, free := limitWaits(ctx, can, ev)
	defer free()
	got.TimeLimit = limit
	leave, complete := g.queue.enter(ev), false
	defer func() {
		if !complete { // after a panic
			leave()
		}
	}()
	var late []lifecycle.Problem
	for _, s := range g.sources {
		if s.await != nil && s.await(ctx, can, ev, &got) && ctx.Err() != nil {
			late = append(late, lifecycle.Problem{
				Key: s.key, Warning: true, Reason: s.description + " did not come in time: the runtime limits the time for the event",
				Then: "the agent decides the event without this information, and again when it gets the information",
			})
		}
	}
	if ev.Container != nil {
		got.HookServers.Problems = append(late, got.HookServers.Problems...)
	} else {
		got.Problems = late
	}
	complete = true
	return got, func() {
		leave()
		if got.notifyAtEnd != nil {
			g.o.HookServers.Notify(got.notifyAtEnd)
		}
	}, got.refusal
}

// Read adds to f the facts of an event that are known already or can be read at once.
func (g *Gatherer) Read(can *route.Capabilities, ev *lifecycle.Event, f *engine.Facts) {
	for _, s := range g.sources {
		if s.read != nil {
			s.read(can, ev, f)
		}
	}
}

// waitNumerator/waitDenominator is the share of a runtime's time limit that waits may take. The rest is for the
// decision, for writes to the kernel and for the answer.
const waitNumerator, waitDenominator = 3, 4

// limitWaits limits the waits of an event to their share of the runtime's time limit. It also returns the runtime's
// time limit. The caller calls free after the last wait. A Synchronize has no limit, because the agent answers the
// runtime before it decides a Synchronize.
func limitWaits(ctx context.Context, can *route.Capabilities, ev *lifecycle.Event) (bounded context.Context, limit time.Duration, free func()) {
	if ev.Kind == lifecycle.Synchronize {
		return ctx, 0, func() {}
	}
	limit = can.AnswerTimeout
	if end, bounded := ctx.Deadline(); bounded {
		if left := time.Until(end); limit <= 0 || left < limit {
			limit = max(left, time.Nanosecond)
		}
	}
	if limit <= 0 {
		return ctx, 0, func() {}
	}
	ctx, free = context.WithTimeout(ctx, limit*waitNumerator/waitDenominator)
	return ctx, limit, free
}

// put adds an entry to a map. If the map is nil, put makes the map first. So if an event has no facts of a kind, the
// map of these facts stays nil.
func put[V any](m *map[string]V, key string, v V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[key] = v
}

// eachPod calls a function for each pod of an event. The function may replace the pod.
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

// eachContainer calls a function for each container of an event. The function gets the container and its pod. If the
// event does not have the pod, the function gets an empty pod. The function may replace the container.
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

// podsWhere returns the selected pods that have not ended and meet a condition.
func (g *Gatherer) podsWhere(selected func(*engine.State) []*engine.Pod, condition func(*engine.Pod) bool) []*lifecycle.Pod {
	defer g.o.State.Free()
	var out []*lifecycle.Pod
	for _, p := range selected(g.o.State.Hold()) {
		if p != nil && !p.Stopped && condition(p) {
			out = append(out, p.Pod)
		}
	}
	return out
}

// allPods returns the pods in the state.
func allPods(s *engine.State) []*engine.Pod {
	return s.PodsWhere(anyPod)
}

// anyPod is a condition that every pod meets.
func anyPod(*engine.Pod) bool { return true }
