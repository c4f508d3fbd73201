package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// resize is a change of a container's request while it is decided.
type resize struct {
	was    *Container // the container before the change
	before topology.Set
	// less and more report whether the resized container requests less or more CPU than before,
	// by request or limit. The resized container need not be the owner.
	less, more bool
	// measured reports that the engine adapted an owner's CPUs to the change.
	measured bool
	// failed is the reason why the owner did not get as many CPUs as it requests now.
	failed error
	// ofPod: the pod's sum has changed.
	ofPod bool
	// all: the pod's containers own the same CPUs.
	all bool
	// revoked reports that containers lost CPUs that their requests do not pay for, and that
	// they still have to be placed again.
	revoked bool
}

// ownsAsOne reports whether all containers of a pod own the same CPUs. Each owns its own CPUs if
// the runtime did not report the pod's resource sum when they were created.
func (n *view) ownsAsOne(p *Pod) bool {
	all := n.ledger.OfPod(p.Pod.UID)
	others := slices.ContainsFunc(n.ledger.OfPodByContainer(p.Pod.UID), func(g placement.Grant) bool { return g.CPUs != all })
	return !others && n.chosenForPod(p)
}

// resized adapts the CPUs of an owner to its request: it adds CPUs, or keeps the best part of
// them. If it cannot reach the requested number, it changes nothing and reports the reason.
func (s *placer) resized(have topology.Set) topology.Set {
	r := s.resize
	r.before, r.all, r.measured = have, s.n.ownsAsOne(s.p), true
	owned := s.withOffline(have).Len()
	n, sum, key, _ := s.wanted(r.was, owned)
	cpus, err := s.resizeTo(have, n, sum)
	if s.c.RefusedCPUs = 0; err != nil {
		s.c.RefusedCPUs = n
		r.failed = fmt.Errorf("the container requests %d CPUs now and owns %d: %w", n, owned, err)
		s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, lifecycle.Problem{
			Key: key, Value: strconv.Itoa(n), Refused: true, Reason: r.failed.Error(), Then: "it keeps the CPUs that it owns and gets no more",
		})
		return have
	}
	if cpus.Empty() && s.n.ledger.Reserved(s.c.Key).Empty() {
		s.lostAll(key, owned)
		s.c.Stamp.CPUs, s.c.decided.narrowed = topology.Set{}, true
		for _, g := range s.n.ledger.HeldByPod(s.p.Pod.UID) {
			if r.all || g.Key == s.c.Key {
				s.n.revoke(s.p, g.Key)
				r.revoked = true
			}
		}
		return cpus
	}
	if !r.all {
		return cpus
	}
	for _, g := range append(s.n.ledger.Grants(), s.n.ledger.AllReserved()...) { // the pod's containers own the same CPUs
		if g.Key.PodUID == s.p.Pod.UID && g.Key != s.c.Key {
			if g.CPUs = cpus; !cpus.Empty() {
				s.n.ledger.write(func(l *placement.Ledger) { l.Put(g) })
			}
			s.n.reserveCPUs(s.p, g.Key, s.n.ledger.Reserved(s.c.Key), g.From)
		}
	}
	return cpus
}

// resizeTo chooses n CPUs for an owner that has some. Its offline CPUs count, and are given up
// first.
func (s *placer) resizeTo(have topology.Set, n int, sum *lifecycle.Resources) (topology.Set, error) {
	all := s.withOffline(have)
	switch numa := s.p.Intent.NUMA.V; {
	case n == all.Len() || numa.Exclusive && n > 0 && n < all.Len():
		return have, nil
	case numa.Exclusive:
		return have, errors.New("whole NUMA nodes are chosen only when a container is created")
	case n > all.Len() && have.Empty():
		return have, errors.New("the CPUs it owns are offline, and the agent adds CPUs only next to CPUs that are online")
	case n > all.Len():
		return s.growTo(have, n, sum)
	}
	kept := s.shrinkTo(have, all.Minus(have), n)
	s.n.reserveCPUs(s.p, s.c.Key, s.c.Stamp.CPUs, s.c.Assignment.From)
	return kept, nil
}

// shrinkTo chooses which CPUs an owner keeps: as many as its request pays for. The owner first
// gives up CPUs that it cannot use. The stamp has the CPUs that it keeps.
func (s *placer) shrinkTo(have, away topology.Set, n int) topology.Set {
	s.c.Stamp.CPUs = lowestCPUs(away, n-have.Len())
	if n == 0 || have.Empty() {
		return topology.Set{}
	}
	w := placement.CPURequest{N: min(n, have.Len()), Have: have, Held: have}
	kept, err := s.n.policy.Placement.Choose(s.n.placementView(topology.Set{}), placement.Subject{Intent: s.p.Intent}, w)
	if err != nil {
		s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, lifecycle.Problem{
			Key: cmp.Or(s.c.Assignment.From, s.p.Intent.Class.Key), Value: strconv.Itoa(n), Warning: true,
			Reason: fmt.Sprintf("the container requests %d CPUs now and owned %d: %s", n, s.withOffline(have).Len(), err),
			Then:   fmt.Sprintf("it still keeps %d of them", w.N),
		})
		w.AnyCPUs = true
		if kept, err = s.n.policy.Placement.Choose(s.n.placementView(topology.Set{}), placement.Subject{Intent: s.p.Intent}, w); err != nil {
			return topology.Set{}
		}
	}
	return kept.CPUs
}

// growTo chooses more CPUs for an owner.
func (s *placer) growTo(have topology.Set, n int, sum *lifecycle.Resources) (topology.Set, error) {
	if err := s.n.policy.Rules.CPUs(s.p.Pod.Namespace, n, s.p.payingResources(sum, &s.c.Pristine)); err != nil {
		return have, err
	}
	w := placement.CPURequest{N: n, Have: have, Held: s.withOffline(have)}
	got, err := s.n.policy.Placement.Choose(s.n.placementView(s.n.ownable(s.p)), s.subject(), w)
	if err != nil {
		return have, err
	}
	return got.CPUs, s.n.grantable(s.p, s.c.Key, got.CPUs)
}

// wanted returns how many CPUs an owner should have, and the sum of its pod's resources. known
// is false if neither the container's nor the pod's resources give a number.
//
// If all containers of a pod own the same CPUs, the number follows from the pod's sum. Not
// every runtime reports a change of the sum, and none reports it together with the container's
// request. If the containers' requests equalled the pod's sum before, their new sum counts.
// Otherwise, as for a pod with pod-level resources, the pod's sum counts.
func (s *placer) wanted(was *Container, owns int) (n int, sum *lifecycle.Resources, key string, known bool) {
	a, ok := s.n.asks(s.p, s.c.Name, &s.c.Pristine)
	if !ok {
		return min(owns, s.p.paidCPUs(&s.c.Pristine).CPUs), nil, cmp.Or(s.c.Assignment.From, was.Assignment.From), false
	}
	if a.pod && !s.n.ownsAsOne(s.p) {
		a = ask{n: s.p.paidCPUs(&s.c.Pristine).CPUs, key: a.key}
	}
	if !a.pod {
		return a.n, s.p.Pod.Resources, a.key, true
	}
	before, after := s.n.podSum(s.p, was), s.n.podSum(s.p, s.c)
	if r := s.resize; r != nil && !r.ofPod {
		n, sum := s.paidByResize(was, owns, &after)
		return n, sum, a.key, true
	}
	had, has := s.p.paidCPUs(&before).CPUs, s.p.paidCPUs(&after).CPUs
	if r := s.resize; r != nil && has > owns && a.n != has && (a.n <= owns || has == was.RefusedCPUs) {
		// The containers' requests are older than the refusal. Their current requests follow.
		return owns, s.p.Pod.Resources, a.key, true
	}
	// A pod never requests less than its containers, so a lower sum is old.
	if has != 0 && (had == a.n || had == owns || had == was.RefusedCPUs || had > a.n || has > a.n) {
		return has, &after, a.key, true
	}
	return a.n, s.p.Pod.Resources, a.key, true
}

// paidByResize returns the number of CPUs that a pod's requests pay for when one of its
// containers is resized, and the sum of these requests. after is the sum of its containers'
// requests after the resize.
func (s *placer) paidByResize(was *Container, owns int, after *lifecycle.Resources) (n int, sum *lifecycle.Resources) {
	n, sum = s.p.paidNow(after)
	resizes := was != s.c // false if the same container is placed again to report the result of its resize
	less, more := resizes && s.resize.less, resizes && s.resize.more
	if n < owns && !less {
		// The container requests no less than before, so a lower sum is old.
		return owns, s.p.Pod.Resources
	}
	if less || !more && s.p.sumOld {
		n = min(n, max(owns, was.RefusedCPUs)) // a container that requests no more gets no more, since a higher sum may be old
	}
	return n, sum
}

// podSum returns the sum of the requests of a pod's live containers, with one of them replaced;
// nil replaces none.
func (n *view) podSum(p *Pod, one *Container) lifecycle.Resources {
	var all []*lifecycle.Resources
	if one != nil {
		all = append(all, &one.Pristine)
	}
	for _, c := range n.containersOf(p.Pod.ID) {
		if (one == nil || c.ID != one.ID) && c.Alive() {
			all = append(all, &c.Pristine)
		}
	}
	return sumOf(all)
}

// listedParts returns the requests of a pod's live containers in a Synchronize, without one
// given container.
func (n *view) listedParts(podID, but string) (parts []*lifecycle.Resources) {
	for _, c := range n.listed[podID] {
		if c.ID != but && c.State != lifecycle.StateStopped {
			parts = append(parts, &c.Resources)
		}
	}
	return parts
}

// sumOf adds up the CPU shares of containers, and their quotas if all have one.
func sumOf(all []*lifecycle.Resources) lifecycle.Resources {
	var request, limit int64
	set, unlimited := false, false
	for _, r := range all {
		request, set = request+intent.SharesMilli(r.CPU.Shares.V), set || r.CPU.Shares.V != 0
		milli := intent.LimitMilli(&r.CPU)
		limit, unlimited = limit+milli, unlimited || milli == 0
	}
	var sum lifecycle.Resources
	if set {
		sum.CPU.Shares = lifecycle.Some(intent.MilliShares(request))
	}
	if !unlimited && limit > 0 {
		sum.CPU.Quota = lifecycle.Some(limit * defaultPeriod / milliOfCPU)
	}
	return sum
}

// propagateResize places the other containers of a resized pod, or other attempts of the
// container, on the CPUs that it owns now.
func (d *draft) propagateResize(c *Container, r *resize) {
	moved, met := r.before != c.Assignment.Owned, r.all && r.failed == nil
	if !moved && !met {
		return
	}
	for _, other := range d.n.containersOf(c.PodID) {
		follows := other.ID != c.ID && d.n.holds(other) && (r.all || other.Key == c.Key)
		if follows && (moved || other.RefusedCPUs != 0) {
			n := *other
			n.Stamp.CPUs = c.Stamp.CPUs
			if met { // the pod's request determines the number
				n.RefusedCPUs = 0
			}
			d.decideContainer(&n, nil, nil)
		}
	}
}

// holds reports whether a container lives, and owns CPUs or waits for CPUs that it owns.
func (n *view) holds(c *Container) bool {
	return c.Alive() && (c.Assignment.Pool == placement.Own || !c.Stamp.CPUs.Empty() && !n.ledger.Reserved(c.Key).Empty())
}

// resizeFromOther adapts the CPUs that a pod's containers own together to the request of another
// container of the pod. That container owns no CPUs, because its creation was refused, but its
// request also pays for the pod's CPUs.
func (r *resize) resizeFromOther(d *draft, c *Container) {
	if r.measured || !r.less && !r.more || !d.n.ownsAsOne(d.n.pod(c.PodID)) {
		return
	}
	beside := &resize{less: r.less, more: r.more}
	all := d.n.containersOf(c.PodID)
	i := slices.IndexFunc(all, func(o *Container) bool { return o.ID != c.ID && d.n.holds(o) })
	if i < 0 {
		beside.resizeEndedOwner(d, c.PodID)
		return
	}
	o := *all[i]
	beside.was = all[i]
	d.decideContainer(&o, nil, beside)
	if d.propagateResize(&o, beside); beside.revoked {
		d.placeRevoked(c.PodID, nil)
	}
	r.failed = beside.failed
}

// resizeEndedOwner is resizeFromOther for a pod without a live container that owns CPUs.
// Containers that are created again get the CPUs that the pod owns after the resize.
func (r *resize) resizeEndedOwner(d *draft, podID string) {
	p := d.n.pod(podID)
	g, owns := d.n.ownedBefore(p, placement.Key{})
	if !owns || g.From == placement.ByKubelet {
		return
	}
	was := &Container{PodID: podID, Key: g.Key}
	was.RefusedCPUs = g.RefusedCPUs
	c := *was
	r.was = was
	s := d.placer(&c, r)
	if cpus := s.resized(g.CPUs); !cpus.Empty() {
		s.own(cpus, g.From, "")
	}
	if d.n.ledger.OfPod(p.Pod.UID) != g.CPUs {
		d.redecide(p, p.Values)
	}
}

// resizePod adapts the number of CPUs that a pod owns to its changed sum of resources.
func (d *draft) resizePod(podID string) {
	if !d.n.ownsAsOne(d.n.pod(podID)) {
		return
	}
	all := d.n.containersOf(podID)
	i := slices.IndexFunc(all, func(c *Container) bool { return c.Alive() && c.Assignment.Pool == placement.Own })
	if i < 0 {
		return
	}
	c, r := *all[i], &resize{was: all[i], ofPod: true}
	d.decideContainer(&c, nil, r)
	if d.propagateResize(&c, r); r.revoked {
		d.placeRevoked(podID, nil)
	}
}

// refusedResize returns how many CPUs an owner with a record requests, if it owns a different
// number; 0 if the requested number is not known. Without a stored refused resize, the number
// follows from the runtime's report. If the containers request less than their pod, either
// request may be old.
func (s *placer) refusedResize(owns int) int {
	a, asks := s.n.asks(s.p, s.c.Name, &s.c.Pristine)
	switch {
	case s.c.RefusedCPUs != 0 || !asks:
		return s.c.RefusedCPUs
	case !a.pod || !s.n.ownsAsOne(s.p):
		return s.p.paidCPUs(&s.c.Pristine).CPUs
	}
	sum := s.n.podSum(s.p, s.c)
	if s.n.listed != nil {
		sum = sumOf(append(s.n.listedParts(s.c.PodID, s.c.ID), &s.c.Pristine))
	}
	if n := s.p.paidCPUs(&sum).CPUs; n != 0 && (n >= a.n || owns != a.n) {
		return n
	}
	return 0
}

// copyRefusedResize copies the refused resize of a container to its next attempt, and reports
// whether the earlier attempt owned CPUs.
func (s *placer) copyRefusedResize() bool {
	g, owns := s.n.ownedBefore(s.p, s.c.Key)
	if !owns || g.Key != s.c.Key && g.RefusedCPUs == 0 {
		return false
	}
	sum := s.c.Pristine
	if s.n.chosenForPod(s.p) {
		sum = s.n.podSum(s.p, s.c)
	}
	if n, a := s.p.paidCPUs(&sum).CPUs, s.p.paidCPUs(s.p.Pod.Resources).CPUs; n != s.withOffline(g.CPUs).Len() && (n == g.RefusedCPUs || n > a && g.Key == s.c.Key) {
		s.c.RefusedCPUs = n
	}
	return true
}

// ownedBefore returns the grant of a container that is created again: that of its earlier
// attempt, or of other containers of its pod if all own the same CPUs. A grant with a refused
// resize has priority.
func (n *view) ownedBefore(p *Pod, key placement.Key) (g placement.Grant, owns bool) {
	if g, owns = n.ledger.Of(key); owns || !n.ownsAsOne(p) {
		return g, owns
	}
	for _, one := range n.ledger.OfPodByContainer(p.Pod.UID) {
		if !owns || g.RefusedCPUs == 0 {
			g, owns = one, true
		}
	}
	return g, owns
}

// reportResized reports an owner whose requested number of CPUs differs from the number that it
// owns.
func (s *placer) reportResized() {
	owns := s.withOffline(s.c.Assignment.Owned).Len()
	n, _, key, known := s.wanted(s.c, owns)
	a, _ := s.n.asks(s.p, s.c.Name, &s.c.Pristine)
	if known && n != owns && (a.n != owns || n == s.c.RefusedCPUs) && !s.p.Intent.NUMA.V.Exclusive {
		s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, ownsOtherNumber(key, n, owns))
	}
	if !known {
		s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, lifecycle.Problem{
			Key: s.c.Assignment.From, Warning: true, Reason: fmt.Sprintf("the container requests no whole number of CPUs now and owns %d", owns), Then: "it keeps them",
		})
	}
}

// ownsOtherNumber is the problem of an owner whose requested number of CPUs differs from the
// number that it owns.
func ownsOtherNumber(key string, asks, owns int) lifecycle.Problem {
	return lifecycle.Problem{
		Key: key, Value: strconv.Itoa(asks), Warning: true,
		Reason: fmt.Sprintf("the container requests %d CPUs now and owns %d", asks, owns), Then: "its next resize may succeed",
	}
}
