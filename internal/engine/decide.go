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

// Decide makes a plan for one event. It changes nothing: neither the state nor
// the event. An event about something unknown is decided as far as it can be;
// one that needs nothing gives an empty plan.
func Decide(s *State, ev *lifecycle.Event, f Facts) *Plan { //nolint:gocognit // one case after the other; to be cut with the rest of the heart
	d := newDraft(s)
	p := &Plan{base: s.Generation, draft: d}
	switch ev.Kind {
	case lifecycle.Synchronize:
		d.synchronize(p, ev, f)
	case lifecycle.Configure:
		d.configure(p, f)
	case lifecycle.RunPodSandbox:
		if ev.Pod != nil {
			d.runPod(p, d.repeated(ev.Pod), f)
		}
	case lifecycle.UpdatePodSandbox:
		if ev.Pod != nil && !d.late(ev.Pod.ID, false) {
			d.updatePod(p, ev, f)
		}
	case lifecycle.Inform:
		if ev.Pod != nil {
			d.inform(p, ev.Pod, f)
		}
	case lifecycle.StopPodSandbox:
		if ev.Pod != nil {
			d.stopPod(p, ev.Pod)
		}
	case lifecycle.RemovePodSandbox:
		if ev.Pod != nil {
			if d.removePod(p, ev.Pod); !f.Swept {
				d.ended = ev.Pod.ID
			}
		}
	default:
		if ev.Pod != nil && ev.Container != nil && ev.Container.ID != "" {
			d.containerEvent(p, ev, f)
		}
	}
	if p.Reject != "" {
		return &Plan{Reject: p.Reject, Container: p.Container, Pod: p.Pod, base: s.Generation}
	}
	if ev.Kind != lifecycle.Synchronize && ev.Kind != lifecycle.Configure {
		d.regive(p)
		d.reseat(p)
	}
	p.Seats = d.seats()
	slices.Sort(p.Changed)
	slices.Sort(p.ChangedPods)
	return p
}

func (d *draft) containerEvent(p *Plan, ev *lifecycle.Event, f Facts) { //nolint:gocognit // one case after the other; to be cut with the rest of the heart
	for _, id := range sortedIDs(f.Ended) {
		if ended := d.pod(id); ended != nil {
			d.removePod(p, ended.Pod)
		}
	}
	if d.late(ev.Pod.ID, !begins(ev.Kind)) {
		p.Pod = nil
		return
	}
	p.Pod = d.knownPod(p, ev.Pod, f)
	c := d.learn(ev.Container)
	switch ev.Kind {
	case lifecycle.CreateContainer:
		d.undo(p, ev)
		f.Records = nil // what is new has no past
		d.create(p, ev.Container, f, lifecycle.StateCreated)
		d.refuse(p)
	case lifecycle.StartContainer:
		if c != nil && c.Unread != "" && ev.Container.Unread == "" {
			d.reread(p, c, ev.Container, f)
			return
		}
		if c == nil {
			// Created while nobody listened: decide now what can be.
			d.create(p, ev.Container, f, lifecycle.StateRunning)
			return
		}
		d.live(p, c, lifecycle.StateRunning)
	case lifecycle.PostUpdateContainer, lifecycle.PostStartContainer, lifecycle.PostCreateContainer:
		if ev.Former != "" {
			d.name(p, ev)
			return
		}
		if c != nil {
			d.live(p, c, c.Life)
		}
	case lifecycle.UpdateContainer:
		if c == nil {
			d.create(p, ev.Container, f, ev.Container.State)
			c = p.Container
		}
		d.update(p, c, ev.Requested, f)
	case lifecycle.StopContainer:
		if c != nil && c.Alive() {
			d.live(p, c, lifecycle.StateStopped)
			p.Gone = append(p.Gone, c.ID)
			if p.Pod.kindOf(c.Name) == lifecycle.Init {
				d.handOver(p.Pod)
				d.rebound(p)
			}
		}
	case lifecycle.RemoveContainer:
		d.removeContainer(p, ev.Container.ID)
	}
}

// begins reports whether an event of a container that is not known says that there is
// one. All others follow something, and end nothing that is not known.
func begins(k lifecycle.Kind) bool {
	return k == lifecycle.CreateContainer || k == lifecycle.StartContainer || k == lifecycle.UpdateContainer
}

// learn returns a known container, with what its creation did not tell.
func (d *draft) learn(told *lifecycle.Container) *Container {
	c := d.container(told.ID)
	if c == nil || c.Name != lifecycle.Unnamed && c.CgroupsPath != "" {
		return c
	}
	n := *c
	n.CgroupsPath = cmp.Or(c.CgroupsPath, told.CgroupsPath)
	if c.Name == lifecycle.Unnamed {
		n.Name = cmp.Or(told.Name, c.Name)
	}
	return &n
}

// name gives a container that was decided before it existed the id and the
// cgroup it has now. What was decided stays.
func (d *draft) name(p *Plan, ev *lifecycle.Event) {
	c := d.container(ev.Former)
	if c == nil || d.container(ev.Container.ID) != nil {
		return
	}
	n := *c
	n.ID, n.CgroupsPath = ev.Container.ID, ev.Container.CgroupsPath
	d.put(c.ID, nil)
	d.put(n.ID, &n)
	p.Container = &n
	p.Gone = append(p.Gone, c.ID)
	p.Changed = append(p.Changed, n.ID)
}

// undo drops earlier attempts at this container that never started: their
// creation failed after we had decided it, and nobody tells of that.
func (d *draft) undo(p *Plan, ev *lifecycle.Event) {
	for _, id := range d.base.byPod[ev.Pod.ID] {
		c := d.container(id)
		if c != nil && c.Name == ev.Container.Name && c.Name != lifecycle.Unnamed && c.ID != ev.Container.ID && c.Life == lifecycle.StateCreated {
			d.put(id, nil)
			p.Gone = append(p.Gone, id)
			p.Undone++
		}
	}
}

// knownPod returns the pod of a container event, taking it in where its own
// event was missed.
func (d *draft) knownPod(p *Plan, pod *lifecycle.Pod, f Facts) *Pod {
	if known := d.pod(pod.ID); known != nil {
		return known
	}
	d.runPod(p, pod, f)
	return p.Pod
}

// repeated returns a pod as it is told once more: with the sum of resources that is
// known by now, since the event has that of the pod's creation.
func (d *draft) repeated(pod *lifecycle.Pod) *lifecycle.Pod {
	known := d.pod(pod.ID)
	if known == nil || known.Stopped || known.Pod.Resources == nil {
		return pod
	}
	n := *pod
	n.Resources = known.Pod.Resources
	return &n
}

func (d *draft) runPod(p *Plan, pod *lifecycle.Pod, f Facts) {
	p.Pod = d.newPod(pod, f)
	if old := d.pod(pod.ID); old != nil {
		p.Pod.Values = revert(p.Pod.Values, old.Values, PodPristine(pod), d.machine.Online(), d.machine)
	}
	d.pods[pod.ID] = p.Pod
	p.ChangedPods = append(p.ChangedPods, pod.ID)
}

// updatePod takes in what the kubelet asks for the pod now. Runtimes tell the pod
// as it was, and what is asked beside it.
func (d *draft) updatePod(p *Plan, ev *lifecycle.Event, f Facts) {
	pod := *ev.Pod
	if ev.Requested != nil {
		asked := Updated(*PodPristine(ev.Pod), ev.Requested)
		pod.Resources = &asked
	}
	old := d.pod(pod.ID)
	d.runPod(p, &pod, f)
	p.Pod.sumOld = false
	if old != nil && lower(PodPristine(old.Pod), PodPristine(&pod)) {
		d.unpaid(p.Pod, nil)
		d.reseatRevoked(p, nil)
	}
	d.resizePod(p)
}

func (d *draft) newPod(pod *lifecycle.Pod, f Facts) *Pod {
	np := &Pod{Pod: pod}
	if old := d.pod(pod.ID); old != nil {
		np.sumOld, np.ended = old.sumOld, old.ended
	}
	d.takeSpec(np, f)
	old := d.pod(pod.ID)
	if pod.Resources == nil && np.Spec != nil || old != nil && old.bySpec && pod.Resources == old.Pod.Resources {
		told := *pod
		if told.Resources = nil; np.Spec != nil {
			told.Resources = RequestedBySpec(np.Spec)
		}
		np.Pod, np.bySpec = &told, told.Resources != nil
	}
	d.takeGranted(np, f)
	np.Intent = d.policy.Rules.Authorise(d.policy.Serving.Read(np.Pod, np.Spec, d.policy.Dialects), pod.Namespace)
	if np.Pod.Resources == nil && (np.Intent.CPUs.Said() || np.Intent.Class.V == intent.Dedicated) {
		np.stranger = append(np.stranger, lifecycle.Problem{
			Key: np.Intent.CPUs.Key, Value: intent.Printable(pod.Name), Warning: true,
			Reason: "the runtime does not say what the pod requests, and no pod spec does: CPUs are measured by its containers alone (podspec)",
		})
	}
	if list, ok := f.ParentCPUs[pod.ID]; ok {
		if within := d.machine.OnlineOf(list); within != d.machine.Online() {
			np.Within = within
		}
	} else if old != nil {
		np.Within = old.Within
	}
	d.decidePod(np)
	return np
}

// PodPristine is what the runtime told of a pod's own resources; empty where it told none.
func PodPristine(p *lifecycle.Pod) *lifecycle.Resources {
	if p.Resources == nil {
		return &lifecycle.Resources{}
	}
	return p.Resources
}

// create decides a container anew. A repeated event gives the same answer.
func (d *draft) create(p *Plan, told *lifecycle.Container, f Facts, life lifecycle.State) {
	c := &Container{
		ID: told.ID, Name: told.Name, PodID: p.Pod.Pod.ID, Life: life, CgroupsPath: told.CgroupsPath,
		Key:     placement.Key{PodUID: p.Pod.Pod.UID, Container: told.Name},
		Kept:    lifecycle.Kept{Pristine: pristine(&told.Resources)},
		Arrived: lifecycle.DeviceGrant{CDI: told.CDIDevices, Nodes: told.Devices},
	}
	if q, ok := f.Distrusted[told.ID]; ok {
		c.distrust = []lifecycle.Problem{q}
	}
	d.noteUnread(p.Pod, c, told, f)
	var rec *Record
	if r, ok := f.Records[told.ID]; ok {
		rec = &r
		stamped := r.CPUs
		if c.Unread == "" {
			rec.CPUs = d.resizedSince(p.Pod, c, told, rec, f)
		} else {
			rec.CPUs = d.unreadSince(p.Pod, c, rec, f)
		}
		c.touched = rec.Pristine.CPU.CPUs != c.Pristine.CPU.CPUs
		c.Born = d.machine.PlacesOf(rec.CPUs) // what is offline comes back
		c.Pristine = askedSince(rec, &told.Resources)
		if rec.CPUs != "" && slices.Contains(rec.Ours, lifecycle.CPUQuota) && !rec.Late {
			requota(&c.Pristine, &rec.Pristine, p.Pod.Intent.QoS)
		}
		d.paidSince(p.Pod, c, told, rec, f)
		c.Resized = rec.CPUs != stamped
		asked := c.Pristine
		c.Kept, c.stamped = rec.Kept, true // what is ours from here on its record does not have
		c.Pristine, c.Unplaced = asked, false
		c.proposed = carried(rec.Ours, &told.Resources, &rec.Pristine)
	} else if c.Unread != "" {
		rec = d.adoptUnread(p.Pod, c, f)
	} else if _, ok := f.Kernel[told.ID]; ok {
		rec = d.adopt(p.Pod, c, f)
	}
	if rec == nil && d.container(c.ID) == nil && p.Pod.Intent.CPUEnv.Said() {
		c.creation = &hook.Creation{Env: told.Env}
	}
	d.hear(p.Pod, c, f.Outside, true)
	if was := d.askedMore(p.Pod, c); was != nil && rec == nil {
		_ = d.resize(p, was, c) // the container's problems have it, and its creation goes on
	} else {
		d.settle(p, c, rec)
	}
	if !d.fresh {
		d.handOver(p.Pod)
		d.rebound(p)
	}
}

// askedSince returns what a container was asked for, by its record, or, where the
// record is of its creation, by the runtime's copy in what we never changed: the
// kubelet may have asked for something else since.
func askedSince(rec *Record, told *lifecycle.Resources) lifecycle.Resources {
	out := rec.Pristine
	if rec.Late {
		return out
	}
	if told.CPU.Shares.V != 0 && !slices.Contains(rec.Ours, lifecycle.CPUShares) {
		out.CPU.Shares = told.CPU.Shares
	}
	if told.CPU.Quota.V != 0 && !slices.Contains(rec.Ours, lifecycle.CPUQuota) {
		out.CPU.Quota = told.CPU.Quota
	}
	if told.Memory.Limit.V != 0 && !slices.Contains(rec.Ours, lifecycle.MemoryLimit) {
		out.Memory.Limit = told.Memory.Limit
	}
	return out
}

// pristine keeps of a container's resources what can ever be put back.
func pristine(r *lifecycle.Resources) lifecycle.Resources {
	return lifecycle.Resources{CPU: r.CPU, Memory: lifecycle.Memory{Limit: r.Memory.Limit}, Hugepages: r.Hugepages}
}

// settle seats a container, asks the hooks and puts the result into the draft.
func (d *draft) settle(p *Plan, c *Container, rec *Record) {
	before := c.proposed // of one that runs already and is new to us
	if c.Unasked {
		before = nil // what it would be put back to is not known
	}
	if old := d.container(c.ID); old != nil {
		before = old.proposed
		c.Home, c.Mems, c.Exports = old.Home, old.Mems, old.Exports
		c.touched = c.touched || old.touched || old.Seat.Pool != placement.Rest
	}
	c.Trouble = slices.Clone(c.distrust)
	if c.Alive() {
		owned := d.ledger.OfPod(c.Key.PodUID)
		d.seat(p.Pod, c, rec)
		if rec == nil && d.container(c.ID) == nil && !d.fresh && c.Life == lifecycle.StateCreated {
			d.settleMems(p.Pod, c)
		}
		if d.ledger.OfPod(c.Key.PodUID) != owned && (d.chosenForPod(p.Pod) || p.Pod.Intent.CPUs.Said() && p.Pod.assigned.Empty()) {
			d.redecidePod(p)
		}
	}
	values, trouble := d.propose(p.Pod, c)
	c.creation = nil
	c.claim(values)
	c.proposed = revert(values, before, &c.Pristine, d.machine.Online(), d.machine)
	d.found(p.Pod, c, append(append(c.Trouble, trouble...), c.refusals...))
	p.Container = c
	p.Changed = append(p.Changed, c.ID)
	d.put(c.ID, c)
	d.rebound(p)
}

// redecidePod asks the hooks for the pod's own values once more: it has come to
// own CPUs, or to have others alone, or its containers have other bursts.
func (d *draft) redecidePod(p *Plan) {
	n := *p.Pod
	d.decidePod(&n)
	n.Values = revert(n.Values, p.Pod.Values, PodPristine(n.Pod), d.machine.Online(), d.machine)
	d.pods[n.Pod.ID], p.Pod = &n, &n
	if !slices.Contains(p.ChangedPods, n.Pod.ID) {
		p.ChangedPods = append(p.ChangedPods, n.Pod.ID)
	}
}

// refuse turns failures of hooks that must not fail into a no, and malformed
// requests in strict mode.
func (d *draft) refuse(p *Plan) {
	if d.failed != "" {
		p.Reject = d.failed + ": failurePolicy.hooks says that no container is created without it"
		return
	}
	if !d.policy.Strict {
		return
	}
	p.Reject = cmp.Or(malformed(p.Pod.Intent.Problems), p.Pod.malformed, p.Container.malformed)
}

// live moves a container to another state of life; what was decided stays.
func (d *draft) live(p *Plan, c *Container, life lifecycle.State) {
	n := *c
	n.Life = life
	p.Container = &n
	p.Changed = append(p.Changed, c.ID)
	d.put(c.ID, &n)
	d.rebound(p)
}

// update takes in what the kubelet asks for now; what we own stays ours.
func (d *draft) update(p *Plan, c *Container, r *lifecycle.Resources, f Facts) {
	n := *c
	n.Pristine = Updated(n.Pristine, r)
	n.Outside = Standing(n.Outside, r)
	d.hear(p.Pod, &n, f.Outside, false)
	if failed := d.resize(p, c, &n); failed != nil && d.policy.Strict {
		p.Reject = failed.Error()
	}
}

// resize seats a container that asks for other resources than before, and those that
// own CPUs together with it.
func (d *draft) resize(p *Plan, was, c *Container) (failed error) {
	r := &resize{was: was}
	d.account(p, was, c)
	if lower(&was.Pristine, &c.Pristine) || was == c {
		d.unpaid(p.Pod, c)
	}
	if d.revoked {
		c.Born, c.Wanted = topology.Set{}, 0
	}
	d.resizing = r
	d.settle(p, c, nil)
	d.follow(p, c)
	d.resizing = nil
	d.reseatRevoked(p, c)
	return r.failed
}

// Updated lays what an update asks for over what was asked for before.
func Updated(have lifecycle.Resources, r *lifecycle.Resources) lifecycle.Resources {
	if r == nil {
		return have
	}
	have.CPU = mergeCPU(have.CPU, r.CPU)
	if r.Memory.Limit.V != 0 {
		have.Memory.Limit = r.Memory.Limit
	}
	have.Hugepages = mergeHugepages(have.Hugepages, r.Hugepages)
	return have
}

// mergeCPU lays requested values over known ones. Zero means "leave it" to
// every runtime.
func mergeCPU(have, ask lifecycle.CPU) lifecycle.CPU {
	if ask.Shares.V != 0 {
		have.Shares = ask.Shares
	}
	if ask.Quota.V != 0 {
		have.Quota = ask.Quota
	}
	if ask.Period.V != 0 {
		have.Period = ask.Period
	}
	have.CPUs = cmp.Or(ask.CPUs, have.CPUs)
	have.Mems = cmp.Or(ask.Mems, have.Mems)
	return have
}

// mergeHugepages lays requested limits over known ones, by size.
func mergeHugepages(have, ask []lifecycle.HugepageLimit) []lifecycle.HugepageLimit {
	if len(ask) == 0 {
		return have
	}
	out := slices.DeleteFunc(slices.Clone(have), func(h lifecycle.HugepageLimit) bool {
		return slices.ContainsFunc(ask, func(a lifecycle.HugepageLimit) bool { return a.Size == h.Size })
	})
	return append(out, ask...)
}

func (d *draft) removeContainer(p *Plan, id string) {
	c := d.container(id)
	if c == nil {
		return
	}
	d.put(id, nil)
	p.Gone = append(p.Gone, id)
	d.rebound(p)
}

// stopPod ends the pod's grants, unless a newer sandbox of the same pod runs.
func (d *draft) stopPod(p *Plan, pod *lifecycle.Pod) {
	known := d.pod(pod.ID)
	if known == nil {
		return
	}
	n := *known
	n.Stopped = true
	d.pods[pod.ID] = &n
	p.Pod = &n
	p.GonePods = append(p.GonePods, pod.ID)
	for _, id := range d.base.byPod[pod.ID] {
		if c := d.container(id); c.Alive() {
			d.live(p, c, lifecycle.StateStopped)
			p.Gone = append(p.Gone, id)
		}
	}
	p.Container = nil
	for id, other := range d.base.pods {
		if id != pod.ID && other.Pod.UID == known.Pod.UID && !other.Stopped {
			return
		}
	}
	d.drop(known.Pod.UID)
}

func (d *draft) removePod(p *Plan, pod *lifecycle.Pod) {
	d.stopPod(p, pod)
	if d.pod(pod.ID) == nil {
		return
	}
	for _, id := range d.base.byPod[pod.ID] {
		d.put(id, nil)
		if !slices.Contains(p.Gone, id) {
			p.Gone = append(p.Gone, id)
		}
	}
	d.pods[pod.ID] = nil
}
