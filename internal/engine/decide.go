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

// Decide makes a plan for one event. It changes neither the state nor the event. If the event's pod or container is not
// known, Decide uses only the data in the event. If nothing needs a decision, the plan is empty.
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
	case ev.Container != nil && ev.Container.ID != "" && !slices.Contains(podEvents, ev.Kind):
		d.decideContainerEvent(ev)
	default:
		d.decidePodEvent(ev)
	}
	if p.Reject != "" {
		return &Plan{Reject: p.Reject, RefusedAsUnaligned: p.RefusedAsUnaligned, refusedForContainer: p.refusedForContainer, ConditionMatches: d.n.matchCounts(), Container: p.Container, Pod: p.Pod, baseGeneration: s.Generation}
	}
	if ev.Kind != lifecycle.Synchronize && ev.Kind != lifecycle.Configure {
		d.regrant()
		d.updatePools()
	}
	p.GroupChanges, p.ConditionMatches = d.n.groupChanges(), d.n.matchCounts()
	slices.Sort(p.Changed)
	slices.Sort(p.ChangedPods)
	return p
}

var (
	// podEvents lists the events that concern a whole pod, even if the event also has a container.
	podEvents = []lifecycle.Kind{lifecycle.RunPodSandbox, lifecycle.UpdatePodSandbox, lifecycle.Inform, lifecycle.StopPodSandbox, lifecycle.RemovePodSandbox}
	// introducingEvents lists the events after which the engine adds their container to the state, if the container is
	// not in the state yet. The engine ignores other events for an unknown container.
	introducingEvents = []lifecycle.Kind{lifecycle.CreateContainer, lifecycle.StartContainer, lifecycle.UpdateContainer}
	// confirmingEvents lists the events that come after the runtime has done what an earlier event announced.
	confirmingEvents = []lifecycle.Kind{lifecycle.PostUpdateContainer, lifecycle.PostStartContainer, lifecycle.PostCreateContainer}
)

// decidePodEvent decides an event that concerns a pod.
func (d *draft) decidePodEvent(ev *lifecycle.Event) {
	switch ev.Kind {
	case lifecycle.RunPodSandbox:
		d.runPod(d.mergeRepeatedPod(ev.Pod))
	case lifecycle.UpdatePodSandbox:
		if !d.isLateEvent(ev.Pod.ID, false) {
			d.updatePod(ev)
		}
	case lifecycle.Inform:
		d.informPod(ev.Pod)
	case lifecycle.StopPodSandbox:
		d.stopPod(ev.Pod)
	case lifecycle.RemovePodSandbox:
		if d.removePod(ev.Pod); !d.facts.CgroupGone {
			d.endedPodID = ev.Pod.ID
		}
	}
}

// decideContainerEvent decides an event that concerns a container.
func (d *draft) decideContainerEvent(ev *lifecycle.Event) {
	for _, id := range sortedKeys(d.facts.EndedSandboxes) {
		if ended := d.n.pod(id); ended != nil {
			d.removePod(ended.Pod)
		}
	}
	if d.isLateEvent(ev.Pod.ID, !slices.Contains(introducingEvents, ev.Kind)) {
		d.plan.Pod = nil
		return
	}
	if d.plan.Pod = d.n.pod(ev.Pod.ID); d.plan.Pod == nil {
		d.runPod(ev.Pod) // the RunPodSandbox event of the pod was missed
	}
	switch c := d.withReportedIdentity(ev.Container); {
	case ev.Kind == lifecycle.CreateContainer:
		d.dropFailedCreates(ev)
		d.facts.Records = nil // a new container has no record
		d.createContainer(ev.Container, lifecycle.StateCreated)
		d.rejectIfRefused()
	case ev.Kind == lifecycle.RemoveContainer:
		d.removeContainer(ev.Container.ID)
	case ev.Kind == lifecycle.UpdateContainer && c == nil:
		d.createContainer(ev.Container, ev.Container.State)
		d.updateContainer(d.plan.Container, ev.Requested)
	case ev.Kind == lifecycle.UpdateContainer:
		d.updateContainer(c, ev.Requested)
	case ev.Kind == lifecycle.StartContainer && c == nil:
		// The container was created while no agent ran. Decide the values that can be set now.
		d.createContainer(ev.Container, lifecycle.StateRunning)
	case ev.Kind == lifecycle.StartContainer && c.Undescribed.Why != "" && ev.Container.Undescribed == "":
		d.decideDescribedContainer(c, ev.Container)
	case slices.Contains(confirmingEvents, ev.Kind) && ev.Former != "":
		d.setIdentity(ev)
	case c != nil:
		d.setState(ev.Kind, c)
	}
}

// setState sets the state of a container after an event.
func (d *draft) setState(k lifecycle.Kind, c *Container) {
	switch {
	case k == lifecycle.StartContainer:
		d.plan.Container = d.withState(c, lifecycle.StateRunning)
	case slices.Contains(confirmingEvents, k):
		d.plan.Container = d.withState(c, c.Life)
	case k == lifecycle.StopContainer && c.Alive():
		d.plan.Container = d.withState(c, lifecycle.StateStopped)
		d.plan.EndedContainers = append(d.plan.EndedContainers, c.ID)
		if d.plan.Pod.kindOf(c.Name) == lifecycle.Init {
			d.freeInitContainerCPUs(d.plan.Pod)
			d.recomputePod(c.PodID)
		}
	}
}

// withReportedIdentity returns the known container with the id of a reported container; nil if none is known. If the
// known container has no name or no cgroup yet, the result has the reported name and cgroup.
func (d *draft) withReportedIdentity(reported *lifecycle.Container) *Container {
	c := d.n.container(reported.ID)
	if c == nil || c.Name != lifecycle.UnnamedContainer && c.CgroupsPath != "" {
		return c
	}
	n := *c
	n.CgroupsPath = cmp.Or(c.CgroupsPath, reported.CgroupsPath)
	if c.Name == lifecycle.UnnamedContainer {
		n.Name = cmp.Or(reported.Name, c.Name)
	}
	return &n
}

// setIdentity sets the id and the cgroup of a container. The container was decided under another id, ev.Former, before
// the runtime made the final id and the cgroup. The decision stays the same.
func (d *draft) setIdentity(ev *lifecycle.Event) {
	c := d.n.container(ev.Former)
	if c == nil || d.n.container(ev.Container.ID) != nil {
		return
	}
	n := *c
	n.ID, n.CgroupsPath = ev.Container.ID, ev.Container.CgroupsPath
	d.n.put(c.ID, nil)
	d.n.put(n.ID, &n)
	d.plan.Container = &n
	d.plan.EndedContainers = append(d.plan.EndedContainers, c.ID)
	d.plan.Changed = append(d.plan.Changed, n.ID)
}

// dropFailedCreates removes earlier attempts of the event's container that never started. The creation of such an
// attempt failed after the decision, and no event reports such a failure.
func (d *draft) dropFailedCreates(ev *lifecycle.Event) {
	for _, id := range d.n.base.containerIDsByPod[ev.Pod.ID] {
		c := d.n.container(id)
		if c != nil && c.Name == ev.Container.Name && c.Name != lifecycle.UnnamedContainer && c.ID != ev.Container.ID && c.Life == lifecycle.StateCreated {
			d.n.put(id, nil)
			d.plan.EndedContainers = append(d.plan.EndedContainers, id)
			d.plan.FailedCreates++
		}
	}
}

// mergeRepeatedPod returns the pod of a repeated RunPodSandbox event, with the sum of resources that the engine knows.
// The event has an older sum: the one from the pod's creation.
func (d *draft) mergeRepeatedPod(pod *lifecycle.Pod) *lifecycle.Pod {
	known := d.n.pod(pod.ID)
	if known == nil || known.Stopped || known.Pod.Resources == nil {
		return pod
	}
	n := *pod
	n.Resources = known.Pod.Resources
	return &n
}

// runPod decides the values of the pod's own cgroup, and adds the pod to the draft.
func (d *draft) runPod(pod *lifecycle.Pod) {
	now := d.newPod(pod)
	if old := d.n.pod(pod.ID); old != nil {
		now.Values = revert(now.Values, old.Values, PodRequest(pod), d.n.machine)
	}
	d.n.pods[pod.ID], d.plan.Pod = now, now
	d.plan.ChangedPods = append(d.plan.ChangedPods, pod.ID)
}

// updatePod applies the kubelet's new request for a pod. Runtimes send the old pod together
// with the new request.
func (d *draft) updatePod(ev *lifecycle.Event) {
	pod := *ev.Pod
	if ev.Requested != nil {
		asked := MergeUpdate(*PodRequest(ev.Pod), ev.Requested)
		pod.Resources = &asked
	}
	old := d.n.pod(pod.ID)
	d.runPod(&pod)
	d.plan.Pod.sumOutdated = false
	if old != nil && lowersCPU(PodRequest(old.Pod), PodRequest(&pod)) && d.revokeUnpaid(pod.ID, nil) {
		d.placeRevoked(pod.ID, nil)
	}
	d.resizePod(pod.ID)
}

// newPod makes a new version of a pod, reads the pod's intent and decides the values of the pod's own cgroup.
func (d *draft) newPod(pod *lifecycle.Pod) *Pod {
	np, old := &Pod{Pod: pod}, cmp.Or(d.n.pod(pod.ID), &Pod{Pod: &lifecycle.Pod{}})
	np.sumOutdated, np.endedRequests, np.AllowedCPUs = old.sumOutdated, old.endedRequests, old.AllowedCPUs
	d.setFacts(np, old)
	if pod.Resources == nil && np.Spec != nil || old.requestFromSpec && pod.Resources == old.Pod.Resources {
		reported := *pod
		if reported.Resources = nil; np.Spec != nil {
			reported.Resources = RequestFromSpec(np.Spec)
		}
		np.Pod, np.requestFromSpec = &reported, reported.Resources != nil
	}
	np.Intent = d.n.policy.Rules.Authorise(d.n.policy.Serving.Read(np.Pod, np.Spec, d.n.policy.Dialects), pod.Namespace)
	d.adjustIntent(np)
	if np.Pod.Resources == nil && (np.Intent.CPUs.IsSet() || np.Intent.Class.V == intent.Dedicated) {
		np.specProblems = append(np.specProblems, lifecycle.Problem{
			Key: np.Intent.CPUs.Key, Value: intent.Printable(pod.Name), Warning: true,
			Reason: "neither the runtime nor a pod spec says what the pod requests, so only its containers' requests limit the number of CPUs (podspec)",
		})
	}
	if list, ok := d.facts.ParentCPUs[pod.ID]; ok {
		if np.AllowedCPUs = d.n.machine.OnlineOf(list); np.AllowedCPUs == d.n.machine.Online() {
			np.AllowedCPUs = topology.Set{}
		}
	}
	d.decidePod(np)
	return np
}

// PodRequest returns the runtime's request for the resources of the whole pod; empty if the runtime sent none.
func PodRequest(p *lifecycle.Pod) *lifecycle.Resources {
	return cmp.Or(p.Resources, &lifecycle.Resources{})
}

// createContainer makes a container from the runtime's report, and decides the container. If the event is repeated, the
// decision is the same.
func (d *draft) createContainer(reported *lifecycle.Container, life lifecycle.State) {
	pod := d.plan.Pod
	c := &Container{
		ID: reported.ID, Name: reported.Name, PodID: pod.Pod.ID, Life: life, CgroupsPath: reported.CgroupsPath,
		Key:              placement.Key{PodUID: pod.Pod.UID, Container: reported.Name},
		RecordFields:     lifecycle.RecordFields{Pristine: pristineResources(&reported.Resources), ClaimDevices: claimDevices(d.facts.Claims[reported.ID], pod.Pod)},
		Properties:       propertiesOf(reported),
		RequestedDevices: lifecycle.DeviceGrant{CDI: reported.CDIDevices, Nodes: reported.Devices},
		Claims:           d.facts.Claims[reported.ID],
	}
	rec := (&recovery{n: &d.n, facts: &d.facts, p: pod, c: c}).findRecord(reported)
	if rec == nil && d.n.container(c.ID) == nil && (pod.Intent.CPUEnv.IsSet() || pod.Intent.RequestsInterfaces()) {
		c.decision.creation = &hook.Creation{Env: reported.Env, HostInterfaces: d.facts.HostInterfaces}
	}
	c.reportUnclaimed(pod.Pod)
	if rec == nil && life == lifecycle.StateCreated {
		d.useExpectedCPUs(c)
	}
	s := d.placer(c, nil)
	s.mergeHookServerValues(d.facts.HookServers, true)
	if rec == nil {
		c.decision.hints = d.facts.HookServers.Hints
	}
	if was := d.previousLargerAttempt(pod, c); was != nil && rec == nil {
		_ = d.resizeContainer(was, c) // resizeContainer has added the error to the container's problems, so the creation continues
	} else {
		d.decideContainer(c, rec, nil)
	}
	c.decision.hints = nil
	if d.plan.Container = c; !d.n.ignoresBase {
		d.freeInitContainerCPUs(d.plan.Pod)
		d.recomputePod(c.PodID)
	}
}

// requestFromRecord returns a container's request from its record. If the record was written at the container's
// creation, fields that the agent never changed come from requested, the resources that the runtime reports now. The
// kubelet may have updated these fields since the creation.
func requestFromRecord(rec *Record, requested *lifecycle.Resources) lifecycle.Resources {
	out := rec.Pristine
	if rec.FromCheckpoint {
		return out
	}
	if !slices.Contains(rec.Managed, lifecycle.CPUShares) {
		out.CPU.Shares = requestedOrKnown(out.CPU.Shares, requested.CPU.Shares)
	}
	if !slices.Contains(rec.Managed, lifecycle.CPUQuota) {
		out.CPU.Quota = requestedOrKnown(out.CPU.Quota, requested.CPU.Quota)
	}
	if !slices.Contains(rec.Managed, lifecycle.MemoryLimit) {
		out.Memory.Limit = requestedOrKnown(out.Memory.Limit, requested.Memory.Limit)
	}
	return out
}

// pristineResources returns the resources in the runtime's request that `trimtab release` can restore.
func pristineResources(r *lifecycle.Resources) lifecycle.Resources {
	return lifecycle.Resources{CPU: r.CPU, Memory: lifecycle.Memory{Limit: r.Memory.Limit}, Hugepages: r.Hugepages}
}

// decideContainer decides the CPUs of a container, runs the hooks, and adds the result to the draft. rec is
// the container's record; nil for none. r is the resize in progress; nil for none.
func (d *draft) decideContainer(c *Container, rec *Record, r *resize) {
	before := c.decision.proposed // set if the container was restored from a record: the values that the agent set and that the runtime still has
	if c.Undescribed.NoRequest {
		before = nil // the container's original values are not known
	}
	old := d.n.container(c.ID)
	if old != nil {
		before = old.decision.proposed
		c.PoolNode, c.CPUEnv, c.Balloon, c.Scheduling = old.PoolNode, old.CPUEnv, old.Balloon, old.Scheduling
		c.Mems, c.ColdStart = d.memoryNodesOf(old)
		c.SkippedInterfaces, c.CDIDevices, c.DevicesRefused = old.SkippedInterfaces, old.CDIDevices, old.DevicesRefused
		c.decision.cpusetLimited = c.decision.cpusetLimited || old.decision.cpusetLimited || old.Assignment.Pool != placement.Unclassified
	}
	c.ProblemSummary.Problems = slices.Clone(c.decision.priorProblems)
	if c.Alive() {
		owned := d.n.ledger.CPUsOfPod(c.Key.PodUID)
		s := d.placer(c, r)
		s.isCreation = rec == nil && old == nil && !d.n.ignoresBase && c.Life == lifecycle.StateCreated
		s.place(rec)
		alignShared(&s)
		s.setSchedulingClass(rec == nil && old == nil)
		if s.isCreation {
			s.chooseMemory()
		}
		s.chooseDevices()
		if d.n.ledger.CPUsOfPod(c.Key.PodUID) != owned && (d.n.choosesCPUsForWholePod(s.p) || s.p.Intent.CPUs.IsSet() && s.p.assignedCPUs.Empty()) {
			d.decidePodAgain(s.p, s.p.Values)
		}
	}
	p := d.n.pod(c.PodID)
	values, trouble := d.n.propose(p, c)
	c.decision.creation = nil
	c.noteManaged(values)
	c.decision.proposed = revert(values, before, &c.Pristine, d.n.machine)
	all := append(append(c.ProblemSummary.Problems, trouble...), c.decision.refusals...)
	if c.ProblemSummary = (ProblemSummary{}); len(all) > 0 {
		c.ProblemSummary = summarize(all, d.n.freeProblemSlots(p, c))
	}
	d.plan.Changed = append(d.plan.Changed, c.ID)
	d.n.put(c.ID, c)
	d.recomputePod(c.PodID)
}

// decidePodAgain runs the hooks again for the values of the pod's own cgroup. It is called when the pod's owned or
// exclusive CPUs, its sum of resources or the bursts of its containers changed. The parameter before has the earlier
// values.
func (d *draft) decidePodAgain(p *Pod, before []lifecycle.Value) {
	n := *p
	d.decidePod(&n)
	n.Values = revert(n.Values, before, PodRequest(n.Pod), d.n.machine)
	d.replacePod(&n)
	if !slices.Contains(d.plan.ChangedPods, n.Pod.ID) {
		d.plan.ChangedPods = append(d.plan.ChangedPods, n.Pod.ID)
	}
}

// replacePod puts a new version of a pod into the draft.
func (d *draft) replacePod(p *Pod) {
	if d.n.pods[p.Pod.ID] = p; d.plan.Pod != nil && d.plan.Pod.Pod.ID == p.Pod.ID {
		d.plan.Pod = p
	}
}

// rejectIfRefused sets the plan's Reject in three cases. First, a hook failed, and failurePolicy.hooks says that the
// failure of this hook refuses containers. Second, a hook or the topology manager refuses the container. Third, the pod
// requires CPUs that it cannot get. In strict mode, rejectIfRefused also sets Reject if a request is malformed.
func (d *draft) rejectIfRefused() {
	if d.n.hookFailure != "" {
		d.plan.Reject = d.n.hookFailure + ": failurePolicy.hooks refuses containers when this hook fails"
		return
	}
	if d.facts.CannotRefuse { // the container keeps running in the shared pool, and a problem says so
		d.plan.Container.decision.unalignedReason, d.plan.Container.decision.missingRequirement = "", ""
	} else if d.plan.Container.decision.unalignedReason == "" {
		d.checkLaterContainers()
	}
	refusal, unalignedReason := cmp.Or(d.plan.Container.decision.hookRefusal, d.plan.Container.decision.missingRequirement), d.plan.Container.decision.unalignedReason
	if d.plan.Reject = cmp.Or(refusal, unalignedReason); d.plan.Reject != "" || !d.n.policy.Strict {
		d.plan.RefusedAsUnaligned = d.plan.Reject != "" && refusal == ""
		return
	}
	d.plan.Reject = cmp.Or(malformedReason(d.plan.Pod.Intent.Problems), d.plan.Pod.ProblemSummary.malformedReason, d.plan.Container.ProblemSummary.malformedReason)
}

// withState sets the lifecycle state of a container, and keeps the decision about it.
func (d *draft) withState(c *Container, life lifecycle.State) *Container {
	n := *c
	n.Life = life
	d.plan.Changed = append(d.plan.Changed, c.ID)
	d.n.put(c.ID, &n)
	d.recomputePod(c.PodID)
	return &n
}

// updateContainer applies the kubelet's new request for a container. Values that the agent decides keep priority.
func (d *draft) updateContainer(c *Container, r *lifecycle.Resources) {
	n := *c
	n.Pristine = MergeUpdate(n.Pristine, r)
	n.HookServerValues = NotOverridden(n.HookServerValues, r)
	s := d.placer(&n, nil)
	s.mergeHookServerValues(d.facts.HookServers, false)
	if err := d.resizeContainer(c, &n); err != nil && d.n.policy.Strict {
		d.plan.Reject = err.Error()
	}
	d.plan.Container = &n
}

// resizeContainer decides a container whose request changed, and the other containers of its pod that own the same
// CPUs. The parameter was is the container before the change. If the number of owned CPUs is not the requested one
// after the resize, the error says why.
func (d *draft) resizeContainer(was, c *Container) (err error) {
	r := &resize{previousContainer: was, requestsLess: lowersCPU(&was.Pristine, &c.Pristine), requestsMore: lowersCPU(&c.Pristine, &was.Pristine)}
	d.accountResize(was, c)
	if r.requestsLess || was == c {
		r.grantsRevoked = d.revokeUnpaid(c.PodID, c)
	}
	if r.grantsRevoked {
		c.Stamp.CPUs, c.RefusedCPUs = topology.Set{}, 0
	}
	d.decideContainer(c, nil, r)
	d.propagateResize(c, r)
	r.resizeFromOther(d, c)
	if r.grantsRevoked {
		d.placeRevoked(c.PodID, c)
	}
	return r.failure
}

// MergeUpdate returns the request have, with the values that the update r sets. r may be nil.
func MergeUpdate(have lifecycle.Resources, r *lifecycle.Resources) lifecycle.Resources {
	if r == nil {
		return have
	}
	was, ask := have.CPU, &r.CPU
	have.CPU.Shares, have.CPU.Quota, have.CPU.Period = requestedOrKnown(was.Shares, ask.Shares), requestedOrKnown(was.Quota, ask.Quota), requestedOrKnown(was.Period, ask.Period)
	have.CPU.CPUs, have.CPU.Mems = cmp.Or(ask.CPUs, was.CPUs), cmp.Or(ask.Mems, was.Mems)
	have.Memory.Limit = requestedOrKnown(have.Memory.Limit, r.Memory.Limit)
	if len(r.Hugepages) > 0 {
		have.Hugepages = append(slices.DeleteFunc(slices.Clone(have.Hugepages), func(h lifecycle.HugepageLimit) bool {
			return slices.ContainsFunc(r.Hugepages, func(a lifecycle.HugepageLimit) bool { return a.Size == h.Size })
		}), r.Hugepages...)
	}
	return have
}

// requestedOrKnown returns ask, the requested value. If ask is zero, it returns have, the value known so far, because
// every runtime sends zero for a value that does not change.
func requestedOrKnown[T comparable](have, ask lifecycle.Opt[T]) lifecycle.Opt[T] {
	if ask.V == *new(T) {
		return have
	}
	return ask
}

// removeContainer removes a container. It also frees the container's CDI devices if the pod has no other attempt of it.
func (d *draft) removeContainer(id string) {
	c := d.n.container(id)
	if c == nil {
		return
	}
	d.n.put(id, nil)
	d.n.freeUnusedDevices(c.PodID, c.Key)
	d.plan.EndedContainers = append(d.plan.EndedContainers, id)
	d.recomputePod(c.PodID)
}

// stopPod marks a sandbox and its containers as stopped. If no other sandbox of the same pod runs, stopPod also frees
// the CPUs and devices that the pod's containers have exclusively.
func (d *draft) stopPod(pod *lifecycle.Pod) {
	known := d.n.pod(pod.ID)
	if known == nil {
		return
	}
	n := *known
	n.Stopped = true
	d.n.pods[pod.ID] = &n
	d.plan.Pod = &n
	d.plan.EndedPods = append(d.plan.EndedPods, pod.ID)
	for _, id := range d.n.base.containerIDsByPod[pod.ID] {
		if c := d.n.container(id); c.Alive() {
			d.withState(c, lifecycle.StateStopped)
			d.plan.EndedContainers = append(d.plan.EndedContainers, id)
		}
	}
	d.plan.Container = nil
	uid := known.Pod.UID
	another := slices.ContainsFunc(d.n.base.PodsOf(uid), func(p *Pod) bool { return p.Pod.ID != pod.ID && !p.Stopped })
	if !another {
		d.removeExpected(uid)
		d.n.ledger.freeDevices(uid)
	}
	if !another && d.n.ledger.HasCPUs(uid) {
		d.n.ledger.write(func(l *placement.Ledger) { l.DropPod(uid) })
		d.n.ledger.grantsChanged = true
	}
}

// removePod stops a sandbox, and removes it with its containers.
func (d *draft) removePod(pod *lifecycle.Pod) {
	d.stopPod(pod)
	if d.n.pod(pod.ID) == nil {
		return
	}
	for _, id := range d.n.base.containerIDsByPod[pod.ID] {
		d.n.put(id, nil)
		if !slices.Contains(d.plan.EndedContainers, id) {
			d.plan.EndedContainers = append(d.plan.EndedContainers, id)
		}
	}
	d.n.pods[pod.ID] = nil
}
