package engine

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// synchronize rebuilds everything from what the runtime says runs. Those whose
// record says that they own CPUs, or that the kubelet gave some, are seated
// first, oldest first: what runs stays where it is.
func (d *draft) synchronize(p *Plan, ev *lifecycle.Event, f Facts) {
	d.rebuild()
	d.listed = map[string][]*lifecycle.Container{}
	for _, c := range ev.Containers {
		if c != nil {
			d.listed[c.PodID] = append(d.listed[c.PodID], c)
		}
	}
	for _, pod := range ev.Pods {
		if pod != nil && pod.ID != "" {
			d.runPod(p, pod, f)
		}
	}
	d.accountSince(f)
	for _, c := range adoptionOrder(ev.Containers, func(c *lifecycle.Container) bool {
		asked, rec := c.Resources, f.Records[c.ID]
		if _, known := f.Records[c.ID]; known {
			asked = askedSince(&rec, &c.Resources)
		}
		return rec.CPUs != "" || d.sitsOnOwn(c, f) || !d.pinned(d.pod(c.PodID), c.Name, &asked).Empty()
	}) {
		p.Pod = d.pod(c.PodID)
		if p.Pod == nil {
			continue
		}
		d.create(p, c, f, c.State)
	}
	d.reserve(p, f)
	// Pods' own values depend on who owns what, which is known only now.
	for _, id := range p.ChangedPods {
		n := *d.pods[id]
		d.decidePod(&n)
		d.pods[id] = &n
	}
	for _, id := range d.base.Containers() {
		if d.container(id) == nil {
			p.Gone = append(p.Gone, id)
		}
	}
	for _, id := range d.base.Pods() {
		if d.pod(id) == nil {
			p.GonePods = append(p.GonePods, id)
		}
	}
	p.Pod, p.Container = nil, nil
}

// rebuild makes the draft forget everything the state holds.
func (d *draft) rebuild() {
	d.fresh, d.moved, d.cloned = true, true, true
	d.ledger = placement.NewLedger()
}

// adoptionOrder sorts containers: owners first, then by age, then by id.
// Containers that have ended or that nobody can name are left out.
func adoptionOrder(all []*lifecycle.Container, owns func(*lifecycle.Container) bool) []*lifecycle.Container {
	live := slices.DeleteFunc(slices.Clone(all), func(c *lifecycle.Container) bool {
		return c == nil || c.ID == "" || c.State == lifecycle.StateStopped
	})
	rank := make(map[string]int, len(live))
	for _, c := range live {
		if !owns(c) {
			rank[c.ID] = 1
		}
	}
	slices.SortStableFunc(live, func(a, b *lifecycle.Container) int {
		return cmp.Or(rank[a.ID]-rank[b.ID], cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return live
}

// configure decides every live container anew under a new policy. Who owns
// CPUs keeps them unless the policy forbids it.
func (d *draft) configure(p *Plan, f Facts) {
	if f.Policy != nil {
		d.policy = f.Policy
		d.laid = d.policy.Placement.Layout(&d.policy.Pools, placement.Demand{})
	}
	if f.Machine != nil {
		d.machine = f.Machine
	}
	owners := d.ledger
	d.ledger, d.cloned, d.moved = placement.NewLedger(), true, true
	s := d.base
	for _, id := range s.Pods() {
		old := s.pods[id]
		if old.Stopped {
			continue
		}
		n := d.newPod(old.Pod, f)
		d.pods[id] = n
		p.ChangedPods = append(p.ChangedPods, id)
	}
	for _, owning := range []bool{true, false} {
		for _, id := range s.Containers() {
			c := s.containers[id]
			if _, owns := owners.Of(c.Key); owns != owning || d.pods[c.PodID] == nil || !c.Alive() {
				continue
			}
			n := *c
			p.Pod = d.pods[c.PodID]
			rec := recordFor(s.Machine, c, owners)
			if rec != nil {
				n.Born = d.machine.PlacesOf(rec.CPUs)
			}
			d.settle(p, &n, rec)
		}
	}
	d.carryOver(p, owners)
	for _, id := range p.ChangedPods {
		n := *d.pods[id]
		d.decidePod(&n)
		n.Values = revert(n.Values, s.pods[id].Values, PodPristine(n.Pod), d.machine.Online(), d.machine)
		d.pods[id] = &n
	}
	p.Pod, p.Container = nil, nil
}

// recordFor is what a live container's record would say now; nil where it owns
// nothing and never did. Its key may own CPUs all the same: an earlier attempt
// that is still running did not get what a later one has.
func recordFor(m *topology.Machine, c *Container, owners *placement.Ledger) *Record {
	if c.Born.Empty() {
		return nil
	}
	// What else a record says is in c already.
	cpus := c.Born
	if g, owns := owners.Of(c.Key); owns {
		cpus = g.CPUs.Union(owners.Kept(c.Key))
	} else if kept := owners.Kept(c.Key); !kept.Empty() {
		cpus = kept
	}
	return &Record{Kept: lifecycle.Kept{Pristine: c.Pristine}, CPUs: m.Format(cpus)}
}

// livePod returns a sandbox of a pod that has not been stopped, or nil.
func (d *draft) livePod(uid string) *Pod {
	for _, id := range sortedIDs(d.base.pods) {
		if p := d.pod(id); p != nil && p.Pod.UID == uid && !p.Stopped {
			return p
		}
	}
	return nil
}

// carryOver keeps the grants of pods that live but whose container does not at
// this moment, between two attempts.
func (d *draft) carryOver(p *Plan, owners *placement.Ledger) {
	decided := map[placement.Key]bool{}
	for _, id := range p.Changed {
		decided[d.containers[id].Key] = true
	}
	for _, g := range append(owners.Grants(), owners.AllKept()...) {
		pod := d.livePod(g.Key.PodUID)
		if decided[g.Key] || !d.policy.Place || pod == nil || d.refusesCPUs(pod.Pod.Namespace) {
			continue
		}
		decided[g.Key] = true
		had, _ := owners.Of(g.Key)
		d.keepAll(pod, g.Key, had.CPUs.Union(owners.Kept(g.Key)), g.From)
	}
}

// reserve keeps the CPUs of pods that own some and whose container does not live
// at this moment, between two attempts.
func (d *draft) reserve(p *Plan, f Facts) {
	for _, id := range p.ChangedPods {
		pod := d.pods[id]
		list, owns := f.Grants[pod.Pod.UID]
		if !owns || !d.policy.Place {
			continue
		}
		key := placement.Key{PodUID: pod.Pod.UID}
		if d.refusesCPUs(pod.Pod.Namespace) {
			continue
		}
		all := d.machine.PlacesOf(list).Minus(d.heldBy(pod))
		if left := all.And(d.reach(pod)); left.Empty() || d.grantable(pod, key, left) == nil {
			d.keepAll(pod, key, all, cmp.Or(pod.Intent.CPUs.Key, pod.Intent.Class.Key))
		}
	}
}
