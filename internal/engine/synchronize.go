package engine

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// synchronize rebuilds the state from the runtime's list of pods and containers. It first decides the containers that
// own CPUs, the oldest first. So these containers keep their CPUs.
func (d *draft) synchronize(ev *lifecycle.Event) {
	d.n.ignoresBase, d.n.ledger = true, draftLedger{Ledger: placement.NewLedger(), isCopy: true, grantsChanged: true}
	d.n.listedContainers = map[string][]*lifecycle.Container{}
	for _, c := range ev.Containers {
		if c != nil {
			d.n.listedContainers[c.PodID] = append(d.n.listedContainers[c.PodID], c)
		}
	}
	for _, pod := range ev.Pods {
		if pod != nil && pod.ID != "" {
			d.runPod(pod)
		}
	}
	d.countUndecidedMembers(ev.Containers)
	all := &recovery{n: &d.n, facts: &d.facts}
	all.recountResizedPods()
	for _, c := range adoptionOrder(ev.Containers, func(c *lifecycle.Container) bool {
		asked, rec := c.Resources, d.facts.Records[c.ID]
		if _, known := d.facts.Records[c.ID]; known {
			asked = requestFromRecord(&rec, &c.Resources)
		} else if f, formerly := d.facts.FormerAgent[c.ID]; formerly && f.CPUs != "" {
			return all.ownedUnderFormerAgent(c.ID)
		}
		if claims, known := d.facts.Claims[c.ID]; known && rec.Version > 0 && claims.Devices() != nil && slices.Contains(rec.ClaimDevices, claims.Claims[0].Device) {
			return rec.OwnsClaimedCPUs
		}
		return rec.CPUs != "" || all.reportedOwnsCPUs(c) || !d.n.grantedCPUs(d.n.pod(c.PodID), c.Name, &asked, d.facts.Claims[c.ID]).Empty()
	}) {
		if d.plan.Pod = d.n.pod(c.PodID); d.plan.Pod != nil {
			d.createContainer(c, c.State)
		}
	}
	d.reserveBetweenAttempts()
	d.restoreDevices()
	d.keepUnlistedGrants()
	d.dropUndecidedMembers()
	// Pods' own values depend on who owns which CPUs, which is known only now.
	for _, id := range d.plan.ChangedPods {
		d.decidePodAgain(d.n.pods[id], nil)
	}
	stays := func(id string) bool { return d.n.container(id) != nil }
	d.plan.EndedContainers = append(d.plan.EndedContainers, slices.DeleteFunc(d.n.base.Containers(), stays)...)
	podStays := func(id string) bool { return d.n.pod(id) != nil }
	d.plan.EndedPods = append(d.plan.EndedPods, slices.DeleteFunc(d.n.base.Pods(), podStays)...)
	d.plan.Pod, d.plan.Container = nil, nil
}

// adoptionOrder returns the containers in the order in which a Synchronize decides them: first those for which the
// function owns returns true, then by age, then by id. It leaves out containers that have ended or have no id.
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

// configure decides all live containers again under a new policy or on a changed machine. Containers keep the CPUs that
// they own, if the policy allows that.
func (d *draft) configure() {
	if d.facts.Policy != nil {
		d.n.policy = d.facts.Policy
		d.n.layoutCache = d.n.policy.Placement.Layout(&d.n.policy.Pools, placement.Demand{})
	}
	if d.facts.Machine != nil {
		d.n.machine = d.facts.Machine
	}
	owners := d.n.ledger.Ledger
	for key := range d.n.base.expectedContainers { // new Expect events will decide expected containers again
		d.setExpected(key, nil)
	}
	d.removesAllExpected = true
	d.n.ledger = draftLedger{Ledger: placement.NewLedger(), isCopy: true, grantsChanged: true}
	d.keepDevices(owners)
	s := d.n.base
	for _, id := range s.Pods() {
		if old := s.pods[id]; !old.Stopped {
			d.n.pods[id] = d.newPod(old.Pod)
			d.plan.ChangedPods = append(d.plan.ChangedPods, id)
		}
	}
	for _, owning := range []bool{true, false} {
		for _, id := range s.Containers() {
			c := s.containers[id]
			if _, owns := owners.GrantOf(c.Key); owns != owning || d.n.pods[c.PodID] == nil || !c.Alive() {
				continue
			}
			n := *c
			rec := recordFor(s.Machine, c, owners)
			if rec != nil {
				n.Stamp.CPUs = d.n.machine.KnownCPUsOf(rec.CPUs)
			}
			d.decideContainer(&n, rec, nil)
		}
	}
	d.keepGrantsBetweenAttempts(owners)
	for _, id := range d.plan.ChangedPods {
		d.decidePodAgain(d.n.pods[id], s.pods[id].Values)
	}
}

// recordFor returns a record with the CPUs that a live container owns; nil if the container owns no CPUs. It does not
// look only for a grant of the container's key in the ledger: a later attempt of the container has the same key, and
// possibly owns CPUs although this attempt owns none.
func recordFor(m *topology.Machine, c *Container, owners *placement.Ledger) *Record {
	if c.Stamp.CPUs.Empty() {
		return nil
	}
	// The other fields of the record are not needed, because c has them.
	g, _ := owners.GrantOf(c.Key)
	cpus := cmp.Or(g.CPUs.Union(owners.ReservedCPUs(c.Key)), c.Stamp.CPUs)
	return &Record{RecordFields: lifecycle.RecordFields{Pristine: c.Pristine}, CPUs: m.Format(cpus)}
}

// keepGrantsBetweenAttempts keeps, under a new policy, the grants of containers that have ended and are not created
// again yet, if their pod has not stopped. owners is the ledger before the new policy.
func (d *draft) keepGrantsBetweenAttempts(owners *placement.Ledger) {
	decided := map[placement.Key]bool{}
	for _, id := range d.plan.Changed {
		decided[d.n.containers[id].Key] = true
	}
	for _, g := range append(owners.Grants(), owners.Reservations()...) {
		pod := firstOf(d.n.base.PodsOf(g.Key.PodUID), func(p *Pod) bool { return !p.Stopped })
		if decided[g.Key] || !d.n.policy.PlacementOn || pod == nil || d.n.refusesCPUs(pod.Pod.Namespace) {
			continue
		}
		decided[g.Key] = true
		had, _ := owners.GrantOf(g.Key)
		d.n.ownOrReserve(d.n.pod(pod.Pod.ID), g.Key, had.CPUs.Union(owners.ReservedCPUs(g.Key)), g.From)
	}
}

// reserveBetweenAttempts keeps, in a Synchronize, the CPUs that a pod is known to own and that none of its listed
// containers owns. These CPUs belong to containers that have ended and are not created again yet.
func (d *draft) reserveBetweenAttempts() {
	for _, id := range d.plan.ChangedPods {
		pod := d.n.pods[id]
		list, owns := d.facts.OwnedCPUs[pod.Pod.UID]
		if !owns || !d.n.policy.PlacementOn || d.n.refusesCPUs(pod.Pod.Namespace) {
			continue
		}
		key := placement.Key{PodUID: pod.Pod.UID}
		all := d.n.machine.KnownCPUsOf(list).Minus(d.n.ownedOrReserved(pod))
		if left := all.And(d.n.usableCPUs(pod)); left.Empty() || d.n.checkGrantable(pod, key, left) == nil {
			d.n.ownOrReserve(pod, key, all, cmp.Or(pod.Intent.CPUs.Key, pod.Intent.Class.Key))
		}
	}
}
