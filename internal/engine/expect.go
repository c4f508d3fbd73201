package engine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
)

// expected is a container that no runtime has reported yet. Its pod is known from its spec. The
// ledger has its CPUs.
type expected struct {
	pod *Pod
	// container is the container as it was decided ahead.
	container *Container
	ask       ask
}

// expect decides a container before a runtime reports it, and keeps only its grant. An event
// without a container ends what is expected of a pod. Pods that a runtime reported are not expected
// any more.
func (d *draft) expect(ev *lifecycle.Event) {
	uid := ev.Pod.UID
	switch {
	case uid == "" || d.n.arrived(uid):
		d.plan.NotExpected = "a runtime has reported the pod"
	case ev.Container == nil:
		d.unexpect(uid)
		if d.n.ledger.Owns(uid) {
			d.n.ledger.write(func(l *placement.Ledger) { l.DropPod(uid) })
		}
	default:
		d.expectContainer(ev)
	}
}

// arrived reports whether a runtime has reported a pod that has not ended.
func (n *view) arrived(uid string) bool {
	return slices.ContainsFunc(n.base.PodsOf(uid), func(p *Pod) bool { return !p.Stopped })
}

// expectContainer decides one container on a draft of its own, as if it were created now.
func (d *draft) expectContainer(ev *lifecycle.Event) {
	try := newDraft(d.n.base, d.facts)
	key := placement.Key{PodUID: ev.Pod.UID, Container: ev.Container.Name}
	try.n.ledger.dropKey(key)
	try.expects = map[placement.Key]*expected{key: nil}
	try.runPod(ev.Pod)
	try.create(ev.Container, lifecycle.StateCreated)
	try.refuse()
	c := try.plan.Container
	if d.plan.Container = c; try.plan.Reject != "" {
		d.plan.NotExpected = try.plan.Reject
		return
	}
	one := &expected{pod: try.plan.Pod, container: c}
	one.ask, _ = try.n.asks(try.plan.Pod, c.Name, &c.Pristine)
	g, owns := try.n.ledger.Of(key)
	d.n.ledger.dropKey(key)
	if owns && c.Assignment.Pool == placement.Own {
		d.n.ledger.write(func(l *placement.Ledger) { l.Put(g) })
	}
	d.put(key, one)
}

// expectUnlisted keeps the CPUs of pods that were expected before a Synchronize and that no runtime
// lists, so that a restart changes no pool.
func (d *draft) expectUnlisted() {
	if !d.facts.Expecting || !d.n.policy.Place {
		return
	}
	listed := map[string]bool{}
	for _, p := range d.n.pods {
		listed[p.Pod.UID] = true
	}
	for _, uid := range sortedKeys(d.facts.Grants) {
		key := placement.Key{PodUID: uid}
		pools := &d.n.policy.Pools
		cpus := d.n.machine.PlacesOf(d.facts.Grants[uid]).And(d.n.machine.Online()).Minus(pools.Reserved)
		if listed[uid] || cpus.Empty() || d.n.ledger.Check(key, cpus) != nil || pools.ForAll().Minus(d.n.ledger.Held()).Minus(cpus).Empty() {
			continue
		}
		d.n.ledger.write(func(l *placement.Ledger) { l.Put(placement.Grant{Key: key, Pod: "a pod that is expected", CPUs: cpus}) })
		d.put(key, &expected{})
	}
}

// put replaces what is expected of a key.
func (d *draft) put(key placement.Key, one *expected) {
	if d.expects == nil {
		d.expects = map[placement.Key]*expected{}
	}
	d.expects[key] = one
}

// unexpect forgets what was expected of a pod.
func (d *draft) unexpect(uid string) {
	for key := range d.n.base.expected {
		if key.PodUID == uid {
			d.put(key, nil)
		}
	}
}

// arrives notes that a runtime creates a container that may be expected. A grant that does not fit
// its request is dropped, so that it is decided anew.
func (d *draft) arrives(c *Container) {
	one := d.n.base.expected[c.Key]
	if _, tried := d.expects[c.Key]; one == nil || tried || d.n.fresh {
		return
	}
	d.put(c.Key, nil)
	g, owns := d.n.ledger.Of(c.Key)
	now, _ := d.n.asks(d.n.pod(c.PodID), c.Name, &c.Pristine)
	if owns && (now != one.ask || d.n.grantable(d.n.pod(c.PodID), c.Key, g.CPUs) != nil) {
		d.n.ledger.dropKey(c.Key)
		owns = false
	}
	d.plan.Expected = owns
}

// expectedMemory returns the containers that are expected, and the pod of each, for the count of
// free memory.
func (s *placer) expectedMemory() map[*Container]*Pod {
	if s.n.fresh || len(s.n.base.expected) == 0 {
		return nil
	}
	out := map[*Container]*Pod{}
	for key, e := range s.n.base.expected {
		live := slices.ContainsFunc(s.n.changedContainers(false), func(c *Container) bool { return c.Key == key })
		if key != s.c.Key && !live && e.pod != nil && e.pod.Intent.QoS == intent.Guaranteed {
			out[e.container] = e.pod
		}
	}
	return out
}

// commitExpected applies a plan's changes of what is expected.
func (s *State) commitExpected(changes map[placement.Key]*expected) {
	if len(changes) == 0 {
		return
	}
	s.expected = maps.Clone(s.expected)
	for key, one := range changes {
		if one == nil {
			delete(s.expected, key)
			continue
		}
		if s.expected == nil {
			s.expected = map[placement.Key]*expected{}
		}
		s.expected[key] = one
	}
}

// Forgotten counts how often all that was expected was forgotten, by a Synchronize or a new policy.
func (s *State) Forgotten() uint64 { return s.forgotten }

// ExpectedPods returns the UIDs of pods with containers that are expected, sorted.
func (s *State) ExpectedPods() []string {
	uids := map[string]bool{}
	for key := range s.expected {
		uids[key.PodUID] = true
	}
	return sortedKeys(uids)
}

// Arrived reports whether a runtime has reported a pod that has not ended.
func (s *State) Arrived(uid string) bool { return newDraft(s, Facts{}).n.arrived(uid) }

// ExpectedGrants returns the CPUs that are kept for containers that no runtime has reported yet,
// sorted by key.
func (s *State) ExpectedGrants() (out []placement.Grant) {
	for key := range s.expected {
		if g, owns := s.ledger.Of(key); owns {
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b placement.Grant) int {
		return cmp.Or(cmp.Compare(a.Key.PodUID, b.Key.PodUID), cmp.Compare(a.Key.Container, b.Key.Container))
	})
	return out
}
