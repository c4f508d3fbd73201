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
	// Await returns when the pod's spec is known, or cannot become known in time: no source answers, or ctx or its
	// own time limit ends. The limit is needed because a runtime waits meanwhile.
	Await(ctx context.Context, pod *lifecycle.Pod)
	// Spec returns the known spec, or nil if it is unknown. It sends no request.
	Spec(podUID string) *lifecycle.PodSpec
}

// Grants is a source of the devices, CPUs and memory nodes that the kubelet gave to pods.
type Grants interface {
	// Await returns when the grants of the pods are known, or cannot become known in time.
	Await(ctx context.Context, pods ...*lifecycle.Pod)
	// Invalidate requests a pod's grants again, because the known ones may be old.
	Invalidate(pod *lifecycle.Pod)
	// Granted returns the known grants. If they are unknown, it returns nil at once and requests them. The
	// source calls Inform when they are known.
	Granted(pod *lifecycle.Pod) *lifecycle.KubeletGrants
	// Known returns the known grants, or nil. It sends no request.
	Known(podUID string) *lifecycle.KubeletGrants
}

func (g *Gatherer) spec(uid string) *lifecycle.PodSpec {
	if g.o.Specs == nil {
		return nil
	}
	return g.o.Specs.Spec(uid)
}

func (g *Gatherer) granted(uid string) *lifecycle.KubeletGrants {
	if g.o.Grants == nil {
		return nil
	}
	return g.o.Grants.Known(uid)
}

// awaitSpec waits for the spec of a new pod or container. If a pod was decided without its spec, the agent decides
// it again before it decides the container.
func (g *Gatherer) awaitSpec(ctx context.Context, _ *route.Capabilities, ev *lifecycle.Event, _ *Gathered) (missing bool) {
	if ev.Pod == nil || ev.Kind != lifecycle.RunPodSandbox && ev.Kind != lifecycle.CreateContainer {
		return false
	}
	if g.o.Specs != nil && g.spec(ev.Pod.UID) == nil && ctx.Err() == nil {
		g.o.Specs.Await(ctx, ev.Pod)
	}
	missing = g.spec(ev.Pod.UID) == nil
	if ev.Kind == lifecycle.CreateContainer {
		g.decideAgain(ev.Pod.UID, func(s *engine.State) []*engine.Pod { return []*engine.Pod{s.Pod(ev.Pod.ID)} })
		if missing && ev.Container != nil {
			g.o.Log.Debug("no pod spec: treated as an app container", logkey.Pod, ev.Pod.Name,
				logkey.Namespace, ev.Pod.Namespace, logkey.Container, ev.Container.Name)
		}
	}
	return missing
}

func (g *Gatherer) readSpecs(_ *route.Capabilities, ev *lifecycle.Event, f *engine.Facts) {
	eachPod(ev, func(p **lifecycle.Pod) {
		uid := (*p).UID
		if s := g.spec(uid); s != nil && uid != "" {
			put(&f.Specs, uid, s)
		}
	})
}

// awaitGrants waits for the kubelet's grants to the event's pods. The agent first decides pods again whose CPUs the
// answer changes, because the event's container may have got those CPUs.
func (g *Gatherer) awaitGrants(ctx context.Context, _ *route.Capabilities, ev *lifecycle.Event, _ *Gathered) (missing bool) {
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
			known := g.granted(p.Pod.UID)
			return known != nil && p.Granted != known
		}) {
			g.Inform([]string{p.UID})
		}
	}
	return slices.ContainsFunc(pods, func(p *lifecycle.Pod) bool { return g.granted(p.UID) == nil })
}

// readGrants adds the known grants of pods whose decision depends on them. If a new policy lets the kubelet decide
// CPUs, it adds the known grants of all pods.
func (g *Gatherer) readGrants(_ *route.Capabilities, ev *lifecycle.Event, f *engine.Facts) {
	if g.o.Grants == nil {
		return
	}
	read := func(p *lifecycle.Pod) {
		if known := g.o.Grants.Granted(p); known != nil { // it also asks the kubelet for unknown ones
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

func (g *Gatherer) kubeletDecidesCPUs() bool {
	defer g.o.State.Free()
	return g.o.State.Hold().Policy.KubeletDecidesCPUs()
}

// grantsMatter reports whether the decision about a pod depends on its grants.
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

// requestsOtherCPUs reports whether an update requests other CPUs than the kubelet's known grant. A resize may have
// changed the grant. Only Guaranteed pods have such grants.
func (g *Gatherer) requestsOtherCPUs(ev *lifecycle.Event) bool {
	if ev.Container == nil || ev.Requested == nil || ev.Requested.CPU.CPUs == "" {
		return false
	}
	defer g.o.State.Free()
	s := g.o.State.Hold()
	pod, m := s.Pod(ev.Pod.ID), s.Machine
	given := g.granted(ev.Pod.UID).StaticGrantOf(ev.Container.Name)
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
				g.missed.add(uid)
			}
			return pods
		})
	}
}

// decideAgain decides the sandboxes of a pod again that lack its current spec, grants or allocations. sandboxes returns
// the sandboxes to check: for a creation only one, so that not all pods are searched. A panic is only logged and
// counted.
func (g *Gatherer) decideAgain(uid string, sandboxes func(*engine.State) []*engine.Pod) {
	defer func() {
		if r := recover(); r != nil {
			g.o.Log.Error("the agent could not decide a pod again", logkey.Panic, r, logkey.Stack, string(debug.Stack()))
			g.o.Fault("")
		}
	}()
	spec, granted, allocated := g.spec(uid), g.granted(uid), g.allocated(uid)
	var state *engine.State
	for _, pod := range g.podsWhere(func(s *engine.State) []*engine.Pod { state = s; return sandboxes(s) }, func(p *engine.Pod) bool {
		return spec != nil && p.Spec != spec || granted != nil && p.Granted != granted || allocated != nil && state.Reallocated(p, allocated)
	}) {
		g.o.Renew(pod)
	}
}
