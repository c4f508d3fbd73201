package engine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// expectedContainer is a container that no runtime has reported yet. The agent knows the container from the spec of its
// pod. The ledger already keeps CPUs and CDI devices for the container.
type expectedContainer struct {
	pod *Pod
	// container is the result of the decision that was made before the runtime reported the container.
	container *Container
	request   cpuRequest // the request for which CPUs were chosen
}

// expect decides the event's container before a runtime reports the container. The ledger then keeps the chosen CPUs
// and devices for the container, and the rest of the decision is dropped. An event without a container means that the
// pod is no longer expected. A pod that a runtime has reported cannot be expected.
func (d *draft) expect(ev *lifecycle.Event) {
	uid := ev.Pod.UID
	switch {
	case uid == "" || d.n.isReported(uid):
		d.plan.NotExpectedReason = "a runtime has reported the pod"
	case ev.Container == nil:
		d.removeExpected(uid)
		d.n.ledger.freeDevices(uid)
		if d.n.ledger.HasCPUs(uid) {
			d.n.ledger.write(func(l *placement.Ledger) { l.DropPod(uid) })
		}
	default:
		d.expectContainer(ev)
	}
}

// isReported reports whether a runtime has reported the pod with this UID, and the pod has not ended.
func (n *view) isReported(uid string) bool {
	return slices.ContainsFunc(n.base.PodsOf(uid), func(p *Pod) bool { return !p.Stopped })
}

// expectContainer decides the event's container on a separate draft, as if a runtime created the container now. Then it
// copies the container's grant and devices into this draft.
func (d *draft) expectContainer(ev *lifecycle.Event) {
	try := newDraft(d.n.base, d.facts)
	key := placement.Key{PodUID: ev.Pod.UID, Container: ev.Container.Name}
	try.n.ledger.dropKey(key)
	try.expectedChanges = map[placement.Key]*expectedContainer{key: nil}
	try.runPod(ev.Pod)
	try.createContainer(ev.Container, lifecycle.StateCreated)
	try.rejectIfRefused()
	c := try.plan.Container
	if d.plan.Container = c; try.plan.Reject != "" {
		d.plan.NotExpectedReason = try.plan.Reject
		return
	}
	one := &expectedContainer{pod: try.plan.Pod, container: c}
	one.request, _ = try.n.requestedCPUs(try.plan.Pod, c.Name, &c.Pristine)
	g, owns := try.n.ledger.GrantOf(key)
	d.n.ledger.dropKey(key)
	if owns && c.Assignment.Pool == placement.Exclusive {
		d.n.ledger.write(func(l *placement.Ledger) { l.Put(g) })
		d.subtractUnlistedGrant(g)
	}
	for _, of := range append(d.n.ledger.KeysWithDevices(key.PodUID), key) { // the container may have taken over devices of init containers
		d.n.ledger.holdDevices(of, try.n.ledger.Devices()[of])
	}
	d.setExpected(key, one)
}

// keepUnlistedGrants keeps, in a Synchronize, the CPUs of pods that were expected before a restart of the agent and
// that no runtime lists yet. So the restart does not change the pools.
func (d *draft) keepUnlistedGrants() {
	if !d.facts.ExpectsMorePods || !d.n.policy.PlacementOn {
		return
	}
	listed := map[string]bool{}
	for _, p := range d.n.pods {
		listed[p.Pod.UID] = true
	}
	for _, uid := range sortedKeys(d.facts.OwnedCPUs) {
		key := placement.Key{PodUID: uid}
		pools := &d.n.policy.Pools
		cpus := d.n.machine.KnownCPUsOf(d.facts.OwnedCPUs[uid]).And(d.n.machine.Online()).Minus(pools.Reserved)
		if listed[uid] || cpus.Empty() || d.n.ledger.Check(key, cpus) != nil || pools.UnclassifiedCPUs().Minus(d.n.ledger.OwnedOrReservedCPUs()).Minus(cpus).Empty() {
			continue
		}
		d.n.ledger.write(func(l *placement.Ledger) {
			l.Put(placement.Grant{Key: key, Pod: "a pod that no runtime has reported yet", CPUs: cpus, Lent: d.facts.LentPods[uid]})
		})
		d.setExpected(key, &expectedContainer{})
	}
}

// subtractUnlistedGrant handles the new grant of a container whose pod has a grant by keepUnlistedGrants. It removes
// the CPUs of the container's grant from the grant of the pod. If no CPUs remain in the pod's grant, it removes the
// pod's grant.
func (d *draft) subtractUnlistedGrant(g placement.Grant) {
	key := placement.Key{PodUID: g.Key.PodUID}
	kept, has := d.n.ledger.GrantOf(key)
	if _, expects := d.n.base.expectedContainers[key]; !has || !expects {
		return
	}
	d.n.ledger.dropKey(key)
	if kept.CPUs = kept.CPUs.Minus(g.CPUs); kept.CPUs.Empty() {
		d.setExpected(key, nil)
		return
	}
	d.n.ledger.write(func(l *placement.Ledger) { l.Put(kept) })
}

// setExpected changes State.expectedContainers when the plan is committed. It sets the expected container of a key, or
// removes the key if e is nil.
func (d *draft) setExpected(key placement.Key, e *expectedContainer) {
	if d.expectedChanges == nil {
		d.expectedChanges = map[placement.Key]*expectedContainer{}
	}
	d.expectedChanges[key] = e
}

// removeExpected removes the containers of a pod from State.expectedContainers.
func (d *draft) removeExpected(uid string) {
	for key := range d.n.base.expectedContainers {
		if key.PodUID == uid {
			d.setExpected(key, nil)
		}
	}
}

// useExpectedCPUs handles the creation of a container that the state possibly expected. Such a container uses the CPUs
// that the ledger keeps for it. If these CPUs do not fit the container's request, useExpectedCPUs removes their grant,
// and other CPUs are chosen later.
func (d *draft) useExpectedCPUs(c *Container) {
	one := d.n.base.expectedContainers[c.Key]
	if _, tried := d.expectedChanges[c.Key]; one == nil || tried || d.n.ignoresBase {
		return
	}
	d.setExpected(c.Key, nil)
	g, owns := d.n.ledger.GrantOf(c.Key)
	now, _ := d.n.requestedCPUs(d.n.pod(c.PodID), c.Name, &c.Pristine)
	if owns && (now != one.request || d.n.checkGrantable(d.n.pod(c.PodID), c.Key, g.CPUs) != nil) {
		d.n.ledger.dropKey(c.Key)
		owns = false
	}
	d.plan.UsesExpectedCPUs = owns
}

// expectedMemoryUsers returns the expected containers of Guaranteed pods, with their pods. Their memory limits count as
// used memory. The result lacks the placer's own container, and containers that the runtime reports in this event.
func (s *placer) expectedMemoryUsers() map[*Container]*Pod {
	if s.n.ignoresBase || len(s.n.base.expectedContainers) == 0 {
		return nil
	}
	out := map[*Container]*Pod{}
	for key, e := range s.n.base.expectedContainers {
		live := slices.ContainsFunc(s.n.changedContainers(false), func(c *Container) bool { return c.Key == key })
		if key != s.c.Key && !live && e.pod != nil && e.pod.Intent.QoS == intent.Guaranteed {
			out[e.container] = e.pod
		}
	}
	return out
}

// commitExpected applies a plan's changes to State.expectedContainers.
func (s *State) commitExpected(changes map[placement.Key]*expectedContainer) {
	if len(changes) == 0 {
		return
	}
	s.expectedContainers = maps.Clone(s.expectedContainers)
	for key, one := range changes {
		if one == nil {
			delete(s.expectedContainers, key)
			continue
		}
		if s.expectedContainers == nil {
			s.expectedContainers = map[placement.Key]*expectedContainer{}
		}
		s.expectedContainers[key] = one
	}
}

// ForgetCount returns how often a Synchronize or a new policy removed all expected containers.
func (s *State) ForgetCount() uint64 { return s.forgetCount }

// ExpectedPods returns the UIDs of pods with expected containers, sorted.
func (s *State) ExpectedPods() []string {
	uids := map[string]bool{}
	for key := range s.expectedContainers {
		uids[key.PodUID] = true
	}
	return sortedKeys(uids)
}

// LendingPods returns the UIDs of the pods that lend CPUs: reclaimed containers may use the CPUs that such a pod owns.
// It returns nil if there is no such pod.
func (s *State) LendingPods() (lending map[string]bool) {
	if s.ledger.LentCPUs().Empty() {
		return nil // the usual case, without a loop over all grants
	}
	for _, g := range s.ledger.Grants() {
		if g.Lent {
			if lending == nil {
				lending = map[string]bool{}
			}
			lending[g.Key.PodUID] = true
		}
	}
	return lending
}

// IsReported reports whether a runtime has reported the pod with this UID, and the pod has not ended.
func (s *State) IsReported(uid string) bool { return newDraft(s, Facts{}).n.isReported(uid) }

// ExpectedGrants returns the CPUs that are kept for containers that no runtime has reported yet,
// sorted by key.
func (s *State) ExpectedGrants() (out []placement.Grant) {
	for key := range s.expectedContainers {
		if g, owns := s.ledger.GrantOf(key); owns {
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b placement.Grant) int {
		return cmp.Or(cmp.Compare(a.Key.PodUID, b.Key.PodUID), cmp.Compare(a.Key.Container, b.Key.Container))
	})
	return out
}
