package conductor

import (
	"context"
	"runtime/debug"
	"slices"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// Specs tells what runtimes do not tell of pods.
type Specs interface {
	// Await returns when the pod's spec is known, or cannot be in time. How long
	// that is at most is its own business; a runtime waits.
	Await(ctx context.Context, pod *lifecycle.Pod)
	// Spec returns what is known of a pod at once, nil for nothing.
	Spec(podUID string) *lifecycle.PodSpec
}

// NoSpecs knows nothing.
type NoSpecs struct{}

// Await returns at once.
func (NoSpecs) Await(context.Context, *lifecycle.Pod) {}

// Spec returns nil.
func (NoSpecs) Spec(string) *lifecycle.PodSpec { return nil }

// Grants tells which devices the kubelet gave pods, and which CPUs and memory
// nodes.
type Grants interface {
	// Await returns when they are known, or cannot be in time, as that of Specs.
	Await(ctx context.Context, pods ...*lifecycle.Pod)
	// Doubt has a pod asked for anew: what is known may be of before.
	Doubt(pod *lifecycle.Pod)
	// Granted returns what is known at once, nil for nothing; what is not known
	// is asked for, and told of later.
	Granted(pod *lifecycle.Pod) *lifecycle.KubeletGrants
	// Known returns what is known at once, and asks nobody.
	Known(podUID string) *lifecycle.KubeletGrants
}

// NoGrants knows nothing.
type NoGrants struct{}

// Await returns at once.
func (NoGrants) Await(context.Context, ...*lifecycle.Pod) {}

// Doubt does nothing.
func (NoGrants) Doubt(*lifecycle.Pod) {}

// Granted returns nil.
func (NoGrants) Granted(*lifecycle.Pod) *lifecycle.KubeletGrants { return nil }

// Known returns nil.
func (NoGrants) Known(string) *lifecycle.KubeletGrants { return nil }

// await gives the spec of a new pod or container the time it may take. Nobody
// has the turn meanwhile: other events go on. What the event's time did not suffice
// for is returned.
func (c *Conductor) await(ctx context.Context, ev *lifecycle.Event) (left []lifecycle.Problem) {
	if c.awaitGrants(ctx, ev) {
		left = append(left, skipped(lifecycle.LateGrants, "what the kubelet granted the pod", "it is decided without, and anew when it is known"))
	}
	if ev.Pod == nil || ev.Kind != lifecycle.RunPodSandbox && ev.Kind != lifecycle.CreateContainer {
		return left
	}
	if c.specs.Spec(ev.Pod.UID) == nil {
		if ctx.Err() == nil {
			c.specs.Await(ctx, ev.Pod)
		}
		if ctx.Err() != nil && c.specs.Spec(ev.Pod.UID) == nil {
			left = append(left, skipped(lifecycle.LateSpec, "the pod's spec", "it is decided without, and anew when it is known"))
		}
	}
	if ev.Kind == lifecycle.CreateContainer {
		c.informFirst(ev.Pod)
	}
	if ev.Kind == lifecycle.CreateContainer && ev.Container != nil && c.specs.Spec(ev.Pod.UID) == nil {
		c.log.Debug("no pod spec: treated as an app container", logkey.Pod, ev.Pod.Name,
			logkey.Namespace, ev.Pod.Namespace, logkey.Container, ev.Container.Name)
	}
	return left
}

// awaitGrants gives what the kubelet granted the event's pods the time it may take.
// Whose CPUs are others by its answer is decided anew first: the event may be of a
// container that they were given to. It reports whether the event's time did not
// suffice.
func (c *Conductor) awaitGrants(ctx context.Context, ev *lifecycle.Event) (cut bool) {
	var pods []*lifecycle.Pod
	switch {
	case ev.Kind == lifecycle.Synchronize && c.kubelets.Load():
		pods = slices.DeleteFunc(slices.Clone(ev.Pods), func(p *lifecycle.Pod) bool { return p == nil || p.UID == "" })
	case ev.Pod == nil:
	case ev.Kind == lifecycle.RunPodSandbox || ev.Kind == lifecycle.CreateContainer:
		if c.heedsGrants(ev.Pod) {
			pods = []*lifecycle.Pod{ev.Pod}
		}
	case ev.Kind == lifecycle.UpdateContainer && c.asksOthers(ev):
		c.grants.Doubt(ev.Pod)
		pods = []*lifecycle.Pod{ev.Pod}
	}
	if len(pods) == 0 {
		return false
	}
	c.grants.Await(ctx, pods...)
	if c.kubelets.Load() {
		c.Inform(c.regranted())
	}
	return ctx.Err() != nil && slices.ContainsFunc(pods, func(p *lifecycle.Pod) bool { return c.grants.Known(p.UID) == nil })
}

// regranted returns the UIDs of pods that were decided by another word of what the
// kubelet granted them than is known now.
func (c *Conductor) regranted() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, id := range c.state.Pods() {
		p := c.state.Pod(id)
		if known := c.grants.Known(p.Pod.UID); known != nil && !p.Stopped && p.Granted != known {
			out = append(out, p.Pod.UID)
		}
	}
	return out
}

// asksOthers reports whether an update asks for other CPUs than the kubelet said that
// it gave the container: a resize may have changed that. Only Guaranteed pods are
// given some.
func (c *Conductor) asksOthers(ev *lifecycle.Event) bool {
	if !c.kubelets.Load() || ev.Container == nil || ev.Requested == nil || ev.Requested.CPU.CPUs == "" {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	pod := c.state.Pod(ev.Pod.ID)
	given := c.grants.Known(ev.Pod.UID).StaticOf(ev.Container.Name)
	m := c.state.Machine
	return pod != nil && pod.Intent.QoS == intent.Guaranteed && m.OnlineOf(ev.Requested.CPU.CPUs) != m.OnlineIDs(given.CPUs)
}

// informFirst decides a pod anew before its container is decided, where the pod
// came without what is known of it now. A fault of ours costs no more than that.
func (c *Conductor) informFirst(pod *lifecycle.Pod) {
	defer func() {
		if r := recover(); r != nil {
			c.log.Error("deciding a pod anew failed", logkey.Panic, r, logkey.Stack, string(debug.Stack()))
			c.recorder.HookError(ourselves)
		}
	}()
	for _, known := range c.behind(pod.UID, func() []*engine.Pod { return []*engine.Pod{c.state.Pod(pod.ID)} }) {
		c.inform(known)
	}
}

// gatherSpecs collects what is known of the event's pods, and what they were
// granted.
func (c *Conductor) gatherSpecs(ev *lifecycle.Event, f *engine.Facts) {
	for _, p := range append(ev.Pods[:len(ev.Pods):len(ev.Pods)], ev.Pod) {
		if p == nil || p.UID == "" {
			continue
		}
		if s := c.specs.Spec(p.UID); s != nil {
			put(&f.Specs, p.UID, s)
		}
		if g := c.granted(p); g != nil {
			put(&f.Granted, p.UID, g)
		}
	}
}

// granted is what is known of a pod that it matters to.
func (c *Conductor) granted(p *lifecycle.Pod) *lifecycle.KubeletGrants {
	if !c.heedsGrants(p) {
		return nil
	}
	return c.grants.Granted(p)
}

// heedsGrants reports whether it matters what a pod was granted.
func (c *Conductor) heedsGrants(p *lifecycle.Pod) bool {
	if _, none := c.grants.(NoGrants); none {
		return false
	}
	if c.kubelets.Load() {
		return true
	}
	c.mu.Lock()
	policy, known := c.state.Policy, c.state.Pod(p.ID)
	c.mu.Unlock()
	if known != nil && known.Pod.UID == p.UID {
		return policy.HeedsGrants(p, known.Intent)
	}
	return policy.HeedsGrants(p, nil)
}

// allGranted collects what the kubelet granted all pods, where a new policy gives it
// the say. What is not known is asked for, and told of later.
func (c *Conductor) allGranted(f *engine.Facts) {
	if f.Policy != nil {
		c.kubelets.Store(f.Policy.KubeletOwns && f.Policy.Place)
	}
	if !c.kubelets.Load() {
		return
	}
	c.mu.Lock()
	pods := make([]*lifecycle.Pod, 0, len(c.state.Pods()))
	for _, id := range c.state.Pods() {
		if p := c.state.Pod(id); !p.Stopped {
			pods = append(pods, p.Pod)
		}
	}
	c.mu.Unlock()
	for _, p := range pods {
		if g := c.grants.Granted(p); g != nil {
			put(&f.Granted, p.UID, g)
		}
	}
}

// Inform decides pods anew whose specs or grants became known or changed: the
// kernel at once, the runtime's copies later. Pods nobody told of are passed
// over.
func (c *Conductor) Inform(podUIDs []string) {
	for _, uid := range podUIDs {
		for _, pod := range c.behind(uid, func() []*engine.Pod { return c.state.PodsOf(uid) }) {
			c.inform(pod)
		}
	}
}

// behind returns those sandboxes of a pod that do not have its spec, or what it
// was granted, as it is now. A creation names its sandbox, so that it need not
// look through all pods; all is called under the lock.
func (c *Conductor) behind(uid string, all func() []*engine.Pod) []*lifecycle.Pod {
	spec, granted := c.specs.Spec(uid), c.grants.Known(uid)
	if spec == nil && granted == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*lifecycle.Pod
	for _, p := range all() {
		if p != nil && !p.Stopped && (spec != nil && p.Spec != spec || granted != nil && p.Granted != granted) {
			out = append(out, p.Pod)
		}
	}
	return out
}

func (c *Conductor) inform(pod *lifecycle.Pod) {
	start := c.now()
	w := c.begin(nil, &lifecycle.Event{Kind: lifecycle.Inform, Pod: pod})
	defer c.end()
	if c.guard(w, func() error { return c.plan(w, engine.Facts{}) }) != nil {
		return
	}
	if w.plan != nil && len(w.plan.Changed)+len(w.plan.ChangedPods) == 0 && !w.failed {
		return // known now, and nothing follows from it
	}
	c.finish(w, start)
}
