package facts

import (
	"context"
	"runtime/debug"
	"slices"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// ResourcePlugins allocate resources that the agent itself does not allocate, such as NICs. The agent asks the plugins
// before it decides the creation of a container.
type ResourcePlugins interface { //nolint:interfacebloat // what the conductor needs of plugins
	// Question returns the requests to plugins for a new container, or nil if the container requests no resource of a
	// plugin. The parameter expected is true if no runtime has reported the container yet.
	Question(pod *lifecycle.Pod, ctr *lifecycle.Container, spec *lifecycle.PodSpec, expected bool) Question
	// ReleaseIfNotCreated releases what plugins allocated for a pod before a runtime reported the pod. If a container
	// of the pod was created, ReleaseIfNotCreated does nothing.
	ReleaseIfNotCreated(podUID string)
	// PreStart notifies the plugins that require a notification before a container starts.
	PreStart(ctx context.Context, pod *lifecycle.Pod, ctr *lifecycle.Container) []lifecycle.Problem
	// Remove releases what plugins allocated for a pod. It does not wait.
	Remove(podUID string)
	// Values returns what plugins allocated for the containers of a pod, by container name.
	Values(podUID string) map[string][]lifecycle.Value
	// ReleaseEnded releases what plugins allocated for ended pods. livePodUIDs has the pods of a Synchronize; all other
	// pods have ended.
	ReleaseEnded(livePodUIDs map[string]bool)
}

// Question has the requests to resource plugins for one new container.
type Question interface {
	// Hints returns the NUMA nodes on which the requested resources are available.
	Hints(ctx context.Context) ([]lifecycle.ResourceHints, []lifecycle.Problem)
	// Allocate allocates the requested resources on the NUMA nodes that the engine chose. The parameter at has these
	// nodes; it is nil if the engine chose none. The error is a refusal: the creation must fail.
	Allocate(ctx context.Context, at *lifecycle.Affinity) (lifecycle.HookServerAnswer, error)
}

// askPlugins calls resource plugins for an event. For a new container, it asks them to allocate resources. Before the
// start of a container, it notifies the plugins. At the end of a pod, and for pods that a Synchronize does not have, it
// releases what the plugins allocated.
func (g *Gatherer) askPlugins(ctx context.Context, can *route.Capabilities, ev *lifecycle.Event, got *GatheredFacts) (missing bool) {
	if g.o.Plugins == nil || got.refusal != nil {
		return false
	}
	defer func() {
		if r := recover(); r != nil {
			g.o.Log.Error("the agent could not ask resource plugins", logkey.Panic, r, logkey.Stack, string(debug.Stack()))
			g.o.CountPanic(lifecycle.ResourcePluginName)
		}
	}()
	switch {
	case ev.Kind == lifecycle.Synchronize:
		live := map[string]bool{}
		eachPod(ev, func(p **lifecycle.Pod) { live[(*p).UID] = true })
		g.o.Plugins.ReleaseEnded(live)
	case ev.Pod == nil || ev.Pod.UID == "":
	case ev.Kind == lifecycle.StopPodSandbox || ev.Kind == lifecycle.RemovePodSandbox:
		if !g.hasOtherSandbox(ev.Pod) {
			g.o.Plugins.Remove(ev.Pod.UID)
		}
	case ev.Container == nil:
	case ev.Kind == lifecycle.StartContainer && can.CarriesRecords():
		got.HookServers.Problems = append(got.HookServers.Problems, g.o.Plugins.PreStart(ctx, ev.Pod, ev.Container)...)
	case ev.Kind == lifecycle.CreateContainer:
		g.allocate(ctx, can, ev, got)
	}
	return false
}

// hasOtherSandbox reports whether a pod has another sandbox that has not ended. If so, the pod continues when this
// sandbox ends.
func (g *Gatherer) hasOtherSandbox(pod *lifecycle.Pod) bool {
	others := g.podsWhere(func(s *engine.State) []*engine.Pod { return s.PodsOf(pod.UID) }, func(p *engine.Pod) bool { return p.Pod.ID != pod.ID })
	return len(others) > 0
}

// allocate asks plugins to allocate the resources of one new container. If a plugin refuses the container, and it is
// too late for the attachment to refuse the creation, allocate reports the refusal as a problem.
func (g *Gatherer) allocate(ctx context.Context, can *route.Capabilities, ev *lifecycle.Event, got *GatheredFacts) {
	err := g.requestAllocation(ctx, can, ev, got)
	if err == nil || can.CarriesRecords() {
		got.refusal = err
		return
	}
	got.HookServers.Problems = append(got.HookServers.Problems, lateRefusal(lifecycle.ResourcePluginName, ev.Container.Name, err, can))
}

// lateRefusal returns the problem that reports a late refusal by a hook server or resource plugin. A refusal is late,
// and has no effect, if the attachment reports an event only after the event happened.
func lateRefusal(hook, value string, err error, can *route.Capabilities) lifecycle.Problem {
	return lifecycle.Problem{
		Hook: hook, Value: value, Refused: true, Reason: err.Error(),
		Then: "the refusal has no effect: with the attachment " + can.Name + " the agent learns of the event only afterwards",
	}
}

// requestAllocation asks plugins to allocate for one new container, in three steps. It asks the plugins on which NUMA
// nodes the requested resources are available. It lets the engine choose NUMA nodes by the present state. It asks the
// plugins to allocate on these nodes, but not if the engine would refuse the container. The error is a plugin's refusal
// of the container.
func (g *Gatherer) requestAllocation(ctx context.Context, can *route.Capabilities, ev *lifecycle.Event, got *GatheredFacts) error {
	q := g.o.Plugins.Question(ev.Pod, ev.Container, g.knownSpec(ev.Pod.UID), ev.Kind == lifecycle.Expect)
	if q == nil {
		return nil
	}
	hints, problems := q.Hints(ctx)
	got.HookServers.Hints = hints
	at, refused := g.chosenAffinity(can, ev, got)
	if refused {
		got.HookServers.Problems = append(got.HookServers.Problems, problems...)
		got.notAllocated = true
		return nil // when the agent decides the event, the engine refuses the container again
	}
	answer, err := q.Allocate(ctx, at)
	got.HookServers.Problems = append(got.HookServers.Problems, append(problems, answer.Problems...)...)
	got.HookServers.Values = withPluginValues(got.HookServers.Values, answer.Values, &got.HookServers.Problems)
	got.HookServers.Hints = limitHints(hints, at)
	return err
}

// chosenAffinity returns the NUMA nodes that the engine would choose now, or nil if plugins gave no hints. The result
// refused is true if the engine would refuse the container.
func (g *Gatherer) chosenAffinity(can *route.Capabilities, ev *lifecycle.Event, got *GatheredFacts) (at *lifecycle.Affinity, refused bool) {
	if len(got.HookServers.Hints) == 0 {
		return nil, false
	}
	var f engine.Facts
	g.Read(can, ev, &f)
	f.HookServers = got.HookServers
	defer g.o.State.Free()
	plan := engine.Decide(g.o.State.Hold(), ev, f)
	return plan.Affinity(), plan.Reject != "" || plan.NotExpectedReason != ""
}

// limitHints limits hints to the NUMA nodes at which plugins allocated. So the decision chooses these nodes, even if
// the state has changed since the allocation. It returns no hints if at is nil.
func limitHints(hints []lifecycle.ResourceHints, at *lifecycle.Affinity) []lifecycle.ResourceHints {
	if at == nil {
		return nil
	}
	out := slices.Clone(hints)
	for i, h := range out {
		if h.Hints != nil {
			out[i].Hints = []lifecycle.NUMAHint{at.HintFor(h.Resource)}
		}
	}
	return out
}

// withPluginValues adds the values of resource plugins to the values of hook servers. If both set the same field to
// different values, the hook server's value stays, and withPluginValues adds a problem.
func withPluginValues(values, pluginValues []lifecycle.Value, problems *[]lifecycle.Problem) []lifecycle.Value {
	type slot struct {
		field lifecycle.Field
		key   string
	}
	bySlot := map[slot]lifecycle.Value{}
	for _, v := range values {
		bySlot[slot{v.Field, v.Key}] = v
	}
	for _, v := range pluginValues {
		first, set := bySlot[slot{v.Field, v.Key}]
		switch {
		case !set:
			bySlot[slot{v.Field, v.Key}] = v
			values = append(values, v)
		case !first.SameSetting(v):
			*problems = append(*problems, lifecycle.Problem{
				Hook: lifecycle.ResourcePluginName, Key: v.Why.Source + ": " + v.Setting(), Value: v.String(), Refused: true,
				Reason: first.Why.Source + " sets another value", Then: "the value of " + first.Why.Source + " stays",
			})
		}
	}
	return values
}

// readPlugins adds what plugins have allocated for a pod that is decided again.
func (g *Gatherer) readPlugins(_ *route.Capabilities, ev *lifecycle.Event, f *engine.Facts) {
	if ev.Kind != lifecycle.Inform || ev.Pod == nil {
		return
	}
	if values := g.allocatedValues(ev.Pod.UID); len(values) > 0 {
		put(&f.PluginValues, ev.Pod.UID, values)
	}
}

// allocatedValues returns what plugins have allocated for a pod, by container name.
func (g *Gatherer) allocatedValues(uid string) map[string][]lifecycle.Value {
	if g.o.Plugins == nil {
		return nil
	}
	return g.o.Plugins.Values(uid)
}
