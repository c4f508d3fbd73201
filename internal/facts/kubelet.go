package facts

import (
	"context"
	"runtime/debug"
	"slices"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// Specs is a source of pod specs.
type Specs interface {
	// Await waits until the pod's spec is known. It gives up if the spec cannot be read, if ctx ends, or after the
	// source's own time limit. The limit is needed because a runtime waits for the agent's answer.
	Await(ctx context.Context, pod *lifecycle.Pod)
	// Spec returns the known spec, or nil if it is unknown. It sends no request.
	Spec(podUID string) *lifecycle.PodSpec
}

// Grants is a source of the devices, CPUs and memory nodes that the kubelet gave to pods.
type Grants interface {
	// Await waits until the grants of the pods are known. It gives up if the kubelet does not answer in time.
	Await(ctx context.Context, pods ...*lifecycle.Pod)
	// Invalidate makes the source request a pod's grants from the kubelet again, because they may have changed. The
	// known grants stay in use until the kubelet answers.
	Invalidate(pod *lifecycle.Pod)
	// Granted returns a pod's known grants. If they are not known, it returns nil at once and requests them from the
	// kubelet. When the kubelet has answered, the source causes a call of Gatherer.Inform, which decides the pod again.
	Granted(pod *lifecycle.Pod) *lifecycle.KubeletGrants
	// Known returns a pod's known grants, or nil. It sends no request.
	Known(podUID string) *lifecycle.KubeletGrants
}

// knownSpec returns the known spec of a pod; nil if it is not known.
func (g *Gatherer) knownSpec(uid string) *lifecycle.PodSpec {
	if g.o.Specs == nil {
		return nil
	}
	return g.o.Specs.Spec(uid)
}

// knownGrants returns the known grants of a pod; nil if they are not known.
func (g *Gatherer) knownGrants(uid string) *lifecycle.KubeletGrants {
	if g.o.Grants == nil {
		return nil
	}
	return g.o.Grants.Known(uid)
}

// awaitSpec waits for the pod's spec at the creation of a sandbox or container. If a pod was decided without its spec,
// the agent decides the pod again before it decides the container.
func (g *Gatherer) awaitSpec(ctx context.Context, _ *route.Capabilities, ev *lifecycle.Event, _ *GatheredFacts) (missing bool) {
	if ev.Pod == nil || ev.Kind != lifecycle.RunPodSandbox && ev.Kind != lifecycle.CreateContainer {
		return false
	}
	if g.o.Specs != nil && g.knownSpec(ev.Pod.UID) == nil && ctx.Err() == nil {
		g.o.Specs.Await(ctx, ev.Pod)
	}
	missing = g.knownSpec(ev.Pod.UID) == nil
	if ev.Kind == lifecycle.CreateContainer {
		g.decideAgain(ev.Pod.UID, func(s *engine.State) []*engine.Pod { return []*engine.Pod{s.Pod(ev.Pod.ID)} })
		if missing && ev.Container != nil {
			g.o.Log.Debug("the agent has no spec of the pod, so it treats the container as an app container", logkey.Pod, ev.Pod.Name,
				logkey.Namespace, ev.Pod.Namespace, logkey.Container, ev.Container.Name)
		}
	}
	return missing
}

// readSpecs adds the known specs of the event's pods.
func (g *Gatherer) readSpecs(_ *route.Capabilities, ev *lifecycle.Event, f *engine.Facts) {
	eachPod(ev, func(p **lifecycle.Pod) {
		uid := (*p).UID
		if s := g.knownSpec(uid); s != nil && uid != "" {
			put(&f.Specs, uid, s)
		}
	})
}

// awaitGrants waits for the kubelet's grants to the event's pods. If the kubelet decides who owns CPUs, the agent then
// decides again about all pods with changed grants. It does so before it decides about the event, because the kubelet
// possibly gave CPUs of these pods to the event's container. missing reports whether the grants of a pod are not known.
func (g *Gatherer) awaitGrants(ctx context.Context, _ *route.Capabilities, ev *lifecycle.Event, _ *GatheredFacts) (missing bool) {
	var pods []*lifecycle.Pod
	switch {
	case g.o.Grants == nil:
	case ev.Kind == lifecycle.Synchronize:
		if g.kubeletDecidesCPUs() {
			eachPod(ev, func(p **lifecycle.Pod) { pods = append(pods, *p) })
			pods = slices.DeleteFunc(pods, func(p *lifecycle.Pod) bool { return p.UID == "" })
		} else {
			pods = g.podsWithHiddenClaims(ev)
		}
	case ev.Pod == nil:
	case ev.Kind == lifecycle.RunPodSandbox || ev.Kind == lifecycle.CreateContainer:
		if g.grantsMatter(ev.Pod) || g.mustAskForClaims(ev) {
			pods = []*lifecycle.Pod{ev.Pod}
		}
	case ev.Kind == lifecycle.UpdateContainer && g.requestsOtherCPUs(ev):
		g.o.Grants.Invalidate(ev.Pod)
		pods = []*lifecycle.Pod{ev.Pod}
	}
	if len(pods) == 0 {
		return false
	}
	g.o.Grants.Await(ctx, pods...)
	if g.kubeletDecidesCPUs() {
		for _, p := range g.podsWhere(allPods, func(p *engine.Pod) bool {
			known := g.knownGrants(p.Pod.UID)
			return known != nil && p.Granted != known
		}) {
			g.Inform([]string{p.UID})
		}
	}
	return slices.ContainsFunc(pods, func(p *lifecycle.Pod) bool { return g.knownGrants(p.UID) == nil })
}

// readGrants adds the known grants of the event's pods, if the decision about a pod depends on its grants. If a new
// policy lets the kubelet decide who owns CPUs, readGrants adds the known grants of all pods.
func (g *Gatherer) readGrants(_ *route.Capabilities, ev *lifecycle.Event, f *engine.Facts) {
	if g.o.Grants == nil {
		return
	}
	read := func(p *lifecycle.Pod) {
		if known := g.o.Grants.Granted(p); known != nil { // Granted also asks the kubelet for grants that are not known
			put(&f.Granted, p.UID, known)
		}
	}
	eachPod(ev, func(p **lifecycle.Pod) {
		if (*p).UID != "" && (g.grantsMatter(*p) || g.usesClaims(*p) && g.claimsDecideCPUs()) {
			read(*p)
		}
	})
	if f.Policy != nil && f.Policy.KubeletDecidesCPUs() {
		for _, p := range g.podsWhere(allPods, anyPod) {
			read(p)
		}
	}
}

// kubeletDecidesCPUs reports whether the kubelet decides who owns CPUs under the current policy.
func (g *Gatherer) kubeletDecidesCPUs() bool {
	defer g.o.State.Free()
	return g.o.State.Hold().Policy.KubeletDecidesCPUs()
}

// grantsMatter reports whether the decision about a pod depends on the kubelet's grants to this pod.
func (g *Gatherer) grantsMatter(p *lifecycle.Pod) bool {
	s := g.o.State.Hold()
	policy, known := s.Policy, s.Pod(p.ID)
	g.o.State.Free()
	var in *intent.Pod
	if known != nil && known.Pod.UID == p.UID {
		in = known.Intent
	}
	return policy.KubeletDecidesCPUs() || policy.UsesDeviceGrants(p, in)
}

// requestsOtherCPUs reports whether an update requests other CPUs than the kubelet's known grant has. If so, a resize
// may have changed the grant. Only Guaranteed pods have grants of CPUs.
func (g *Gatherer) requestsOtherCPUs(ev *lifecycle.Event) bool {
	if ev.Container == nil || ev.Requested == nil || ev.Requested.CPU.CPUs == "" {
		return false
	}
	defer g.o.State.Free()
	s := g.o.State.Hold()
	pod, m := s.Pod(ev.Pod.ID), s.Machine
	given := g.knownGrants(ev.Pod.UID).StaticGrantOf(ev.Container.Name)
	return s.Policy.KubeletDecidesCPUs() && pod != nil && pod.Intent.QoS == intent.Guaranteed &&
		m.OnlineOf(ev.Requested.CPU.CPUs) != m.OnlineCPUs(given.CPUs)
}

// Inform decides pods again whose specs, grants or allocations became known or changed. It skips pods that the
// state does not have.
func (g *Gatherer) Inform(podUIDs []string) {
	for _, uid := range podUIDs {
		g.decideAgain(uid, func(s *engine.State) []*engine.Pod {
			pods := s.PodsOf(uid)
			if len(pods) == 0 {
				g.missedPods.add(uid)
			}
			return pods
		})
	}
}

// decideAgain decides sandboxes of a pod again if they were decided without the pod's current spec, grants or
// allocations. The parameter sandboxes is a function that returns the sandboxes to check. When a container is created,
// it returns only the container's sandbox, so that not all pods are searched. If a panic occurs, decideAgain only logs
// and counts it.
func (g *Gatherer) decideAgain(uid string, sandboxes func(*engine.State) []*engine.Pod) {
	defer func() {
		if r := recover(); r != nil {
			g.o.Log.Error("the agent could not decide again about a pod", logkey.Panic, r, logkey.Stack, string(debug.Stack()))
			g.o.CountPanic("")
		}
	}()
	spec, granted, allocated := g.knownSpec(uid), g.knownGrants(uid), g.allocatedValues(uid)
	var state *engine.State
	for _, pod := range g.podsWhere(func(s *engine.State) []*engine.Pod { state = s; return sandboxes(s) }, func(p *engine.Pod) bool {
		return spec != nil && p.Spec != spec || granted != nil && p.Granted != granted || allocated != nil && state.PluginValuesDiffer(p, allocated)
	}) {
		g.o.DecideAgain(pod)
	}
}
