package engine

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// Decide makes a plan for one event and changes neither the state nor the event. It decides as
// much as it can for an unknown pod or container. An event that needs no decision gives an
// empty plan.
func Decide(s *State, ev *lifecycle.Event, f Facts) *Plan {
	d := newDraft(s, f)
	p := d.plan
	switch {
	case ev.Kind == lifecycle.Synchronize:
		d.synchronize(ev)
	case ev.Kind == lifecycle.Configure:
		d.configure()
	case ev.Pod == nil:
	case ev.Kind == lifecycle.Expect:
		d.expect(ev)
	case ev.Container != nil && ev.Container.ID != "" && !slices.Contains(ofPod, ev.Kind):
		d.containerEvent(ev)
	default:
		d.podEvent(ev)
	}
	if p.Reject != "" {
		return &Plan{Reject: p.Reject, Unaligned: p.Unaligned, Matched: d.n.matches(), Container: p.Container, Pod: p.Pod, base: s.Generation}
	}
	if ev.Kind != lifecycle.Synchronize && ev.Kind != lifecycle.Configure {
		d.regrant()
		d.regroup()
	}
	p.GroupChanges, p.Matched = d.n.groupChanges(), d.n.matches()
	slices.Sort(p.Changed)
	slices.Sort(p.ChangedPods)
	return p
}

var (
	// ofPod lists the events that concern a pod, even if they name a container.
	ofPod = []lifecycle.Kind{lifecycle.RunPodSandbox, lifecycle.UpdatePodSandbox, lifecycle.Inform, lifecycle.StopPodSandbox, lifecycle.RemovePodSandbox}
	// begins lists the events that may introduce an unknown container. The engine ignores other
	// events for an unknown container.
	begins = []lifecycle.Kind{lifecycle.CreateContainer, lifecycle.StartContainer, lifecycle.UpdateContainer}
	// later lists the events that only confirm an earlier event.
	later = []lifecycle.Kind{lifecycle.PostUpdateContainer, lifecycle.PostStartContainer, lifecycle.PostCreateContainer}
)

func (d *draft) podEvent(ev *lifecycle.Event) {
	switch ev.Kind {
	case lifecycle.RunPodSandbox:
		d.runPod(d.repeated(ev.Pod))
	case lifecycle.UpdatePodSandbox:
		if !d.afterEnd(ev.Pod.ID, false) {
			d.updatePod(ev)
		}
	case lifecycle.Inform:
		d.inform(ev.Pod)
	case lifecycle.StopPodSandbox:
		d.stopPod(ev.Pod)
	case lifecycle.RemovePodSandbox:
		if d.removePod(ev.Pod); !d.facts.Swept {
			d.ended = ev.Pod.ID
		}
	}
}

func (d *draft) containerEvent(ev *lifecycle.Event) {
	for _, id := range sortedKeys(d.facts.Ended) {
		if ended := d.n.pod(id); ended != nil {
			d.removePod(ended.Pod)
		}
	}
	if d.afterEnd(ev.Pod.ID, !slices.Contains(begins, ev.Kind)) {
		d.plan.Pod = nil
		return
	}
	if d.plan.Pod = d.n.pod(ev.Pod.ID); d.plan.Pod == nil {
		d.runPod(ev.Pod) // its own event was missed
	}
	switch c := d.learn(ev.Container); {
	case ev.Kind == lifecycle.CreateContainer:
		d.dropFailed(ev)
		d.facts.Records = nil // a new container has no history
		d.create(ev.Container, lifecycle.StateCreated)
		d.refuse()
	case ev.Kind == lifecycle.RemoveContainer:
		d.removeContainer(ev.Container.ID)
	case ev.Kind == lifecycle.UpdateContainer && c == nil:
		d.create(ev.Container, ev.Container.State)
		d.update(d.plan.Container, ev.Requested)
	case ev.Kind == lifecycle.UpdateContainer:
		d.update(c, ev.Requested)
	case ev.Kind == lifecycle.StartContainer && c == nil:
		// The container was created while no agent ran, so decide the values that can still be
		// set.
		d.create(ev.Container, lifecycle.StateRunning)
	case ev.Kind == lifecycle.StartContainer && c.Undescribed.Why != "" && ev.Container.Undescribed == "":
		d.describedAgain(c, ev.Container)
	case slices.Contains(later, ev.Kind) && ev.Former != "":
		d.name(ev)
	case c != nil:
		d.setState(ev.Kind, c)
	}
}

// setState sets a container's state to the state that the event implies.
func (d *draft) setState(k lifecycle.Kind, c *Container) {
	switch {
	case k == lifecycle.StartContainer:
		d.plan.Container = d.live(c, lifecycle.StateRunning)
	case slices.Contains(later, k):
		d.plan.Container = d.live(c, c.Life)
	case k == lifecycle.StopContainer && c.Alive():
		d.plan.Container = d.live(c, lifecycle.StateStopped)
		d.plan.Gone = append(d.plan.Gone, c.ID)
		if d.plan.Pod.kindOf(c.Name) == lifecycle.Init {
			d.handOver(d.plan.Pod)
			d.recomputePod(c.PodID)
		}
	}
}

// learn returns a known container with the properties that its creation did not report.
func (d *draft) learn(reported *lifecycle.Container) *Container {
	c := d.n.container(reported.ID)
	if c == nil || c.Name != lifecycle.Unnamed && c.CgroupsPath != "" {
		return c
	}
	n := *c
	n.CgroupsPath = cmp.Or(c.CgroupsPath, reported.CgroupsPath)
	if c.Name == lifecycle.Unnamed {
		n.Name = cmp.Or(reported.Name, c.Name)
	}
	return &n
}

// name sets the id and cgroup of a container that was decided before it had them. Its decision
// stays.
func (d *draft) name(ev *lifecycle.Event) {
	c := d.n.container(ev.Former)
	if c == nil || d.n.container(ev.Container.ID) != nil {
		return
	}
	n := *c
	n.ID, n.CgroupsPath = ev.Container.ID, ev.Container.CgroupsPath
	d.n.put(c.ID, nil)
	d.n.put(n.ID, &n)
	d.plan.Container = &n
	d.plan.Gone = append(d.plan.Gone, c.ID)
	d.plan.Changed = append(d.plan.Changed, n.ID)
}

// dropFailed drops earlier attempts of this container that never started. Their creation failed
// after the decision, and no event reports such a failure.
func (d *draft) dropFailed(ev *lifecycle.Event) {
	for _, id := range d.n.base.byPod[ev.Pod.ID] {
		c := d.n.container(id)
		if c != nil && c.Name == ev.Container.Name && c.Name != lifecycle.Unnamed && c.ID != ev.Container.ID && c.Life == lifecycle.StateCreated {
			d.n.put(id, nil)
			d.plan.Gone = append(d.plan.Gone, id)
			d.plan.FailedCreates++
		}
	}
}

// repeated returns a pod that the runtime reports again, but keeps the known sum of resources,
// because the event repeats the sum at the pod's creation.
func (d *draft) repeated(pod *lifecycle.Pod) *lifecycle.Pod {
	known := d.n.pod(pod.ID)
	if known == nil || known.Stopped || known.Pod.Resources == nil {
		return pod
	}
	n := *pod
	n.Resources = known.Pod.Resources
	return &n
}

func (d *draft) runPod(pod *lifecycle.Pod) {
	now := d.newPod(pod)
	if old := d.n.pod(pod.ID); old != nil {
		now.Values = revert(now.Values, old.Values, PodPristine(pod), d.n.machine)
	}
	d.n.pods[pod.ID], d.plan.Pod = now, now
	d.plan.ChangedPods = append(d.plan.ChangedPods, pod.ID)
}

// updatePod applies the kubelet's new request for a pod. Runtimes send the old pod together
// with the new request.
func (d *draft) updatePod(ev *lifecycle.Event) {
	pod := *ev.Pod
	if ev.Requested != nil {
		asked := Updated(*PodPristine(ev.Pod), ev.Requested)
		pod.Resources = &asked
	}
	old := d.n.pod(pod.ID)
	d.runPod(&pod)
	d.plan.Pod.sumOld = false
	if old != nil && lowersCPU(PodPristine(old.Pod), PodPristine(&pod)) && d.revokeUnpaid(pod.ID, nil) {
		d.placeRevoked(pod.ID, nil)
	}
	d.resizePod(pod.ID)
}

func (d *draft) newPod(pod *lifecycle.Pod) *Pod {
	np, old := &Pod{Pod: pod}, cmp.Or(d.n.pod(pod.ID), &Pod{Pod: &lifecycle.Pod{}})
	np.sumOld, np.ended, np.Within = old.sumOld, old.ended, old.Within
	d.setFacts(np, old)
	if pod.Resources == nil && np.Spec != nil || old.bySpec && pod.Resources == old.Pod.Resources {
		reported := *pod
		if reported.Resources = nil; np.Spec != nil {
			reported.Resources = RequestedBySpec(np.Spec)
		}
		np.Pod, np.bySpec = &reported, reported.Resources != nil
	}
	np.Intent = d.n.policy.Rules.Authorise(d.n.policy.Serving.Read(np.Pod, np.Spec, d.n.policy.Dialects), pod.Namespace)
	d.wish(np)
	if np.Pod.Resources == nil && (np.Intent.CPUs.IsSet() || np.Intent.Class.V == intent.Dedicated) {
		np.specProblems = append(np.specProblems, lifecycle.Problem{
			Key: np.Intent.CPUs.Key, Value: intent.Printable(pod.Name), Warning: true,
			Reason: "the runtime does not say what the pod requests, and no pod spec does: CPUs are measured by its containers alone (podspec)",
		})
	}
	if list, ok := d.facts.ParentCPUs[pod.ID]; ok {
		if np.Within = d.n.machine.OnlineOf(list); np.Within == d.n.machine.Online() {
			np.Within = topology.Set{}
		}
	}
	d.decidePod(np)
	return np
}

// PodPristine returns the runtime's request for the pod's own resources; empty if it sent none.
func PodPristine(p *lifecycle.Pod) *lifecycle.Resources {
	return cmp.Or(p.Resources, &lifecycle.Resources{})
}

// create decides a container. A repeated event gives the same answer.
func (d *draft) create(reported *lifecycle.Container, life lifecycle.State) {
	pod := d.plan.Pod
	c := &Container{
		ID: reported.ID, Name: reported.Name, PodID: pod.Pod.ID, Life: life, CgroupsPath: reported.CgroupsPath,
		Key:              placement.Key{PodUID: pod.Pod.UID, Container: reported.Name},
		RecordFields:     lifecycle.RecordFields{Pristine: pristine(&reported.Resources)},
		About:            aboutOf(reported),
		RequestedDevices: lifecycle.DeviceGrant{CDI: reported.CDIDevices, Nodes: reported.Devices},
	}
	rec := (&recovery{n: &d.n, facts: &d.facts, p: pod, c: c}).find(reported)
	if rec == nil && d.n.container(c.ID) == nil && (pod.Intent.CPUEnv.IsSet() || pod.Intent.AsksForInterfaces()) {
		c.decided.creation = &hook.Creation{Env: reported.Env, HostInterfaces: d.facts.HostInterfaces}
	}
	if rec == nil && life == lifecycle.StateCreated {
		d.arrives(c)
	}
	s := d.placer(c, nil)
	s.mergeExternal(d.facts.HookServers, true)
	if rec == nil {
		c.decided.hints = d.facts.HookServers.Hints
	}
	if was := d.previousLarger(pod, c); was != nil && rec == nil {
		_ = d.resize(was, c) // the container has this problem too, so report it there and continue the creation
	} else {
		d.decideContainer(c, rec, nil)
	}
	c.decided.hints = nil
	if d.plan.Container = c; !d.n.fresh {
		d.handOver(d.plan.Pod)
		d.recomputePod(c.PodID)
	}
}

// askedSince returns a container's request from its record. If the record was written at the
// container's creation, fields that the agent never changed come from the runtime's copy,
// because the kubelet may have updated them.
func askedSince(rec *Record, requested *lifecycle.Resources) lifecycle.Resources {
	out := rec.Pristine
	if rec.Late {
		return out
	}
	if !slices.Contains(rec.Managed, lifecycle.CPUShares) {
		out.CPU.Shares = latest(out.CPU.Shares, requested.CPU.Shares)
	}
	if !slices.Contains(rec.Managed, lifecycle.CPUQuota) {
		out.CPU.Quota = latest(out.CPU.Quota, requested.CPU.Quota)
	}
	if !slices.Contains(rec.Managed, lifecycle.MemoryLimit) {
		out.Memory.Limit = latest(out.Memory.Limit, requested.Memory.Limit)
	}
	return out
}

// pristine returns the resources that a release could restore.
func pristine(r *lifecycle.Resources) lifecycle.Resources {
	return lifecycle.Resources{CPU: r.CPU, Memory: lifecycle.Memory{Limit: r.Memory.Limit}, Hugepages: r.Hugepages}
}

// decideContainer gives a container its CPUs, asks the hooks and adds the result to the draft.
// r is the resize in progress; nil for none.
func (d *draft) decideContainer(c *Container, rec *Record, r *resize) {
	before := c.decided.proposed // the container runs already, and no earlier decision is known
	if c.Undescribed.NoRequest {
		before = nil // its original values are not known
	}
	old := d.n.container(c.ID)
	if old != nil {
		before = old.decided.proposed
		c.PoolNode, c.Mems, c.CPUEnv, c.Balloon, c.Scheduling = old.PoolNode, old.Mems, old.CPUEnv, old.Balloon, old.Scheduling
		c.SkippedInterfaces = old.SkippedInterfaces
		c.decided.narrowed = c.decided.narrowed || old.decided.narrowed || old.Assignment.Pool != placement.Unclassified
	}
	c.ProblemSummary.Problems = slices.Clone(c.decided.distrust)
	if c.Alive() {
		owned := d.n.ledger.OfPod(c.Key.PodUID)
		s := d.placer(c, r)
		s.place(rec)
		alignShared(&s)
		if rec == nil && old == nil {
			c.Scheduling = s.scheduling
		}
		if rec == nil && old == nil && !d.n.fresh && c.Life == lifecycle.StateCreated {
			s.chooseMemory()
		}
		if d.n.ledger.OfPod(c.Key.PodUID) != owned && (d.n.chosenForPod(s.p) || s.p.Intent.CPUs.IsSet() && s.p.assigned.Empty()) {
			d.redecide(s.p, s.p.Values)
		}
	}
	p := d.n.pod(c.PodID)
	values, trouble := d.n.propose(p, c)
	c.decided.creation = nil
	c.claim(values)
	c.decided.proposed = revert(values, before, &c.Pristine, d.n.machine)
	all := append(append(c.ProblemSummary.Problems, trouble...), c.decided.refusals...)
	if c.ProblemSummary = (ProblemSummary{}); len(all) > 0 {
		c.ProblemSummary = summarize(all, d.n.room(p, c))
	}
	d.plan.Changed = append(d.plan.Changed, c.ID)
	d.n.put(c.ID, c)
	d.recomputePod(c.PodID)
}

// redecide asks the hooks again for the pod's own values, because its owned or exclusive CPUs or
// its containers' bursts have changed. before are the pod's earlier values.
func (d *draft) redecide(p *Pod, before []lifecycle.Value) {
	n := *p
	d.decidePod(&n)
	n.Values = revert(n.Values, before, PodPristine(n.Pod), d.n.machine)
	d.replace(&n)
	if !slices.Contains(d.plan.ChangedPods, n.Pod.ID) {
		d.plan.ChangedPods = append(d.plan.ChangedPods, n.Pod.ID)
	}
}

// replace puts a new version of a pod into the draft.
func (d *draft) replace(p *Pod) {
	if d.n.pods[p.Pod.ID] = p; d.plan.Pod != nil && d.plan.Pod.Pod.ID == p.Pod.ID {
		d.plan.Pod = p
	}
}

// refuse rejects the plan if a hook that failurePolicy.hooks covers failed, if a hook or the
// topology manager refuses the container, or, in strict mode, if a request is malformed.
func (d *draft) refuse() {
	if d.n.failed != "" {
		d.plan.Reject = d.n.failed + ": failurePolicy.hooks allows no container without it"
		return
	}
	if d.facts.Unstoppable { // it runs in the shared pool, which is reported
		d.plan.Container.decided.unaligned = ""
	}
	refused, unaligned := d.plan.Container.decided.refused, d.plan.Container.decided.unaligned
	if d.plan.Reject = cmp.Or(refused, unaligned); d.plan.Reject != "" || !d.n.policy.Strict {
		d.plan.Unaligned = d.plan.Reject != "" && refused == ""
		return
	}
	d.plan.Reject = cmp.Or(malformed(d.plan.Pod.Intent.Problems), d.plan.Pod.ProblemSummary.malformed, d.plan.Container.ProblemSummary.malformed)
}

// live sets a container's state and keeps its decision.
func (d *draft) live(c *Container, life lifecycle.State) *Container {
	n := *c
	n.Life = life
	d.plan.Changed = append(d.plan.Changed, c.ID)
	d.n.put(c.ID, &n)
	d.recomputePod(c.PodID)
	return &n
}

// update applies the kubelet's new request. Values that we decide keep priority.
func (d *draft) update(c *Container, r *lifecycle.Resources) {
	n := *c
	n.Pristine = Updated(n.Pristine, r)
	n.HookServerValues = NotOverridden(n.HookServerValues, r)
	s := d.placer(&n, nil)
	s.mergeExternal(d.facts.HookServers, false)
	if failed := d.resize(c, &n); failed != nil && d.n.policy.Strict {
		d.plan.Reject = failed.Error()
	}
	d.plan.Container = &n
}

// resize places a container whose request changed, and the containers that own CPUs together
// with it.
func (d *draft) resize(was, c *Container) (failed error) {
	r := &resize{was: was, less: lowersCPU(&was.Pristine, &c.Pristine), more: lowersCPU(&c.Pristine, &was.Pristine)}
	d.accountResize(was, c)
	if r.less || was == c {
		r.revoked = d.revokeUnpaid(c.PodID, c)
	}
	if r.revoked {
		c.Stamp.CPUs, c.RefusedCPUs = topology.Set{}, 0
	}
	d.decideContainer(c, nil, r)
	d.propagateResize(c, r)
	r.resizeFromOther(d, c)
	if r.revoked {
		d.placeRevoked(c.PodID, c)
	}
	return r.failed
}

// Updated returns the earlier request merged with an update.
func Updated(have lifecycle.Resources, r *lifecycle.Resources) lifecycle.Resources {
	if r == nil {
		return have
	}
	was, ask := have.CPU, &r.CPU
	have.CPU.Shares, have.CPU.Quota, have.CPU.Period = latest(was.Shares, ask.Shares), latest(was.Quota, ask.Quota), latest(was.Period, ask.Period)
	have.CPU.CPUs, have.CPU.Mems = cmp.Or(ask.CPUs, was.CPUs), cmp.Or(ask.Mems, was.Mems)
	have.Memory.Limit = latest(have.Memory.Limit, r.Memory.Limit)
	if len(r.Hugepages) > 0 {
		have.Hugepages = append(slices.DeleteFunc(slices.Clone(have.Hugepages), func(h lifecycle.HugepageLimit) bool {
			return slices.ContainsFunc(r.Hugepages, func(a lifecycle.HugepageLimit) bool { return a.Size == h.Size })
		}), r.Hugepages...)
	}
	return have
}

// latest returns the requested number, or the known one if the request is zero. For every
// runtime zero means that the value stays.
func latest[T comparable](have, ask lifecycle.Opt[T]) lifecycle.Opt[T] {
	if ask.V == *new(T) {
		return have
	}
	return ask
}

func (d *draft) removeContainer(id string) {
	c := d.n.container(id)
	if c == nil {
		return
	}
	d.n.put(id, nil)
	d.plan.Gone = append(d.plan.Gone, id)
	d.recomputePod(c.PodID)
}

// stopPod ends the pod's grants, unless a newer sandbox of the same pod runs.
func (d *draft) stopPod(pod *lifecycle.Pod) {
	known := d.n.pod(pod.ID)
	if known == nil {
		return
	}
	n := *known
	n.Stopped = true
	d.n.pods[pod.ID] = &n
	d.plan.Pod = &n
	d.plan.GonePods = append(d.plan.GonePods, pod.ID)
	for _, id := range d.n.base.byPod[pod.ID] {
		if c := d.n.container(id); c.Alive() {
			d.live(c, lifecycle.StateStopped)
			d.plan.Gone = append(d.plan.Gone, id)
		}
	}
	d.plan.Container = nil
	uid := known.Pod.UID
	another := slices.ContainsFunc(d.n.base.PodsOf(uid), func(p *Pod) bool { return p.Pod.ID != pod.ID && !p.Stopped })
	if !another {
		d.unexpect(uid)
	}
	if !another && d.n.ledger.Owns(uid) {
		d.n.ledger.write(func(l *placement.Ledger) { l.DropPod(uid) })
		d.n.ledger.moved = true
	}
}

func (d *draft) removePod(pod *lifecycle.Pod) {
	d.stopPod(pod)
	if d.n.pod(pod.ID) == nil {
		return
	}
	for _, id := range d.n.base.byPod[pod.ID] {
		d.n.put(id, nil)
		if !slices.Contains(d.plan.Gone, id) {
			d.plan.Gone = append(d.plan.Gone, id)
		}
	}
	d.n.pods[pod.ID] = nil
}
