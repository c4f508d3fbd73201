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

// resize is a resize that is being decided. Either one container was resized, or the sum of resources of a pod. The
// field comments call the container whose owned CPUs can change because of the resize "the owner". The owner is the
// resized container, or another container of its pod.
type resize struct {
	previousContainer *Container   // the owner before the resize
	previousCPUs      topology.Set // the CPUs of the owner before the resize
	// requestsLess and requestsMore report whether the resized container requests less or more CPU than before. Both
	// its CPU request and its CPU limit count.
	requestsLess, requestsMore bool
	// cpusAdapted means that the engine has adapted the owner's CPUs to the resize, or has refused to do so.
	cpusAdapted bool
	// failure is the reason why the owner did not get as many CPUs as it requests now; nil if it got them.
	failure error
	// podResized means that the pod's sum of resources changed, and not the request of one container.
	podResized bool
	// ownedTogether means that all containers of the pod own the same CPUs.
	ownedTogether bool
	// grantsRevoked means that containers lost CPUs because their requests no longer pay for them. These containers
	// must still be placed again.
	grantsRevoked bool
}

// ownSameCPUs reports whether all containers of a pod own the same CPUs. They can own different CPUs although the agent
// chooses CPUs for the whole pod: this is so if the runtime did not report the sum of the pod's resources when the
// containers were created.
func (n *view) ownSameCPUs(p *Pod) bool {
	all := n.ledger.CPUsOfPod(p.Pod.UID)
	others := slices.ContainsFunc(n.ledger.GrantsOfPod(p.Pod.UID), func(g placement.Grant) bool { return g.CPUs != all })
	return !others && n.choosesCPUsForWholePod(p)
}

// resizedCPUs returns the CPUs of a container after a resize. The parameter have has the usable CPUs that the container
// owned before. resizedCPUs adds CPUs, or chooses which CPUs the container keeps. If the container cannot get the
// requested number of CPUs, resizedCPUs adds a problem and returns have.
func (s *placer) resizedCPUs(have topology.Set) topology.Set {
	r := s.resize
	r.previousCPUs, r.ownedTogether, r.cpusAdapted = have, s.n.ownSameCPUs(s.p), true
	owned := s.withReservedCPUs(have).Len()
	n, sum, key, _ := s.targetCPUCount(r.previousContainer, owned)
	cpus, err := s.resizeTo(have, n, sum)
	if s.c.RefusedCPUs = 0; err != nil {
		s.c.RefusedCPUs = n
		r.failure = fmt.Errorf("the container requests %d CPUs now and owns %d: %w", n, owned, err)
		s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, lifecycle.Problem{
			Key: key, Value: strconv.Itoa(n), Refused: true, Reason: r.failure.Error(), Then: "the container keeps the CPUs that it owns and gets no more",
		})
		return have
	}
	if cpus.Empty() && s.n.ledger.ReservedCPUs(s.c.Key).Empty() {
		s.reportLostAllCPUs(key, owned)
		s.c.Stamp.CPUs, s.c.decision.cpusetLimited = topology.Set{}, true
		for _, g := range s.n.ledger.CombinedGrants(s.p.Pod.UID) {
			if r.ownedTogether || g.Key == s.c.Key {
				s.n.revoke(s.p, g.Key)
				r.grantsRevoked = true
			}
		}
		return cpus
	}
	if !r.ownedTogether {
		return cpus
	}
	for _, g := range append(s.n.ledger.Grants(), s.n.ledger.Reservations()...) { // the pod's containers own the same CPUs
		if g.Key.PodUID == s.p.Pod.UID && g.Key != s.c.Key {
			if g.CPUs = cpus; !cpus.Empty() {
				s.n.ledger.write(func(l *placement.Ledger) { l.Put(g) })
			}
			s.n.reserveCPUs(s.p, g.Key, s.n.ledger.ReservedCPUs(s.c.Key), g.From)
		}
	}
	return cpus
}

// resizeTo chooses CPUs for a container that should own n CPUs. The parameter have has the CPUs that the container owns
// and can use now. CPUs that the container owns and that are offline also count for n, but are not in the result. If
// the container must lose CPUs, it loses the offline CPUs first.
func (s *placer) resizeTo(have topology.Set, n int, sum *lifecycle.Resources) (topology.Set, error) {
	all := s.withReservedCPUs(have)
	switch numa := s.p.Intent.NUMA.V; {
	case n == all.Len() || numa.Exclusive && n > 0 && n < all.Len():
		return have, nil
	case numa.Exclusive:
		return have, errors.New("the agent chooses whole NUMA nodes only when a container is created")
	case n > all.Len() && have.Empty():
		return have, errors.New("all CPUs of the container are offline, and the agent adds CPUs only next to CPUs that are online")
	case n > all.Len():
		return s.growTo(have, n, sum)
	}
	kept := s.shrinkTo(have, all.Minus(have), n)
	s.n.reserveCPUs(s.p, s.c.Key, s.c.Stamp.CPUs, s.c.Assignment.From)
	return kept, nil
}

// shrinkTo chooses which n of its CPUs a container keeps. The parameter have has the owned CPUs that the container can
// use now, and unusable has the other owned CPUs. The container loses the CPUs in unusable first. shrinkTo returns
// those CPUs of have that the container keeps, and sets Stamp.CPUs to those CPUs of unusable that it keeps.
func (s *placer) shrinkTo(have, unusable topology.Set, n int) topology.Set {
	s.c.Stamp.CPUs = lowestCPUs(unusable, n-have.Len())
	if n == 0 || have.Empty() {
		return topology.Set{}
	}
	w := placement.CPURequest{N: min(n, have.Len()), UsableCPUs: have, OwnedCPUs: have}
	kept, err := s.n.policy.Placement.Choose(s.n.placementView(topology.Set{}), placement.Subject{Intent: s.p.Intent}, w)
	if err != nil {
		s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, lifecycle.Problem{
			Key: cmp.Or(s.c.Assignment.From, s.p.Intent.Class.Key), Value: strconv.Itoa(n), Warning: true,
			Reason: fmt.Sprintf("the container owned %d CPUs and now requests %d, but the policy could not choose which of them it keeps: %s", s.withReservedCPUs(have).Len(), n, err),
			Then:   fmt.Sprintf("the container still keeps %d of these CPUs", w.N),
		})
		w.AnyCPUs = true
		if kept, err = s.n.policy.Placement.Choose(s.n.placementView(topology.Set{}), placement.Subject{Intent: s.p.Intent}, w); err != nil {
			return topology.Set{}
		}
	}
	return kept.CPUs
}

// growTo adds CPUs to the usable CPUs that a container owns (have), so that the container owns n CPUs.
func (s *placer) growTo(have topology.Set, n int, sum *lifecycle.Resources) (topology.Set, error) {
	if err := s.n.policy.Rules.CheckCPUs(s.p.Pod.Namespace, n, s.p.payingResources(sum, &s.c.Pristine)); err != nil {
		return have, err
	}
	w := placement.CPURequest{N: n, UsableCPUs: have, OwnedCPUs: s.withReservedCPUs(have)}
	got, err := s.n.policy.Placement.Choose(s.n.placementView(s.n.ownableCPUs(s.p)), s.subject(), w)
	if err != nil {
		return have, err
	}
	return got.CPUs, s.n.checkGrantable(s.p, s.c.Key, got.CPUs)
}

// targetCPUCount returns n, the number of CPUs that the container should own, and key, the annotation or configuration
// key because of which it owns CPUs. The parameter owns is the number of CPUs that the container owns now, and was is
// the container before the resize. The result sum has the pod's resources from which the authorization rules compute
// whether the container may own n CPUs. If the container no longer requests CPUs of its own, known is false and sum is
// nil.
//
// If all containers of a pod own the same CPUs, the number follows from the sum of the pod's resources. But the known
// sum is possibly out of date: not every runtime reports a change of the sum, and no runtime reports the change
// together with the container's request. So if the sum was equal to the total of the containers' requests before the
// resize, the new total counts. Otherwise, for example because the pod has pod-level resources, the pod's sum counts.
func (s *placer) targetCPUCount(was *Container, owns int) (n int, sum *lifecycle.Resources, key string, known bool) {
	a, ok := s.n.requestedCPUs(s.p, s.c.Name, &s.c.Pristine)
	if !ok {
		return min(owns, s.p.paidCPUs(&s.c.Pristine).CPUs), nil, cmp.Or(s.c.Assignment.From, was.Assignment.From), false
	}
	if a.ownedTogether && !s.n.ownSameCPUs(s.p) {
		a = cpuRequest{count: s.p.paidCPUs(&s.c.Pristine).CPUs, key: a.key}
	}
	if !a.ownedTogether {
		return a.count, s.p.Pod.Resources, a.key, true
	}
	before, after := s.n.podSum(s.p, was), s.n.podSum(s.p, s.c)
	if r := s.resize; r != nil && !r.podResized {
		n, sum := s.paidByResize(was, owns, &after)
		return n, sum, a.key, true
	}
	had, has := s.p.paidCPUs(&before).CPUs, s.p.paidCPUs(&after).CPUs
	if r := s.resize; r != nil && has > owns && a.count != has && (a.count <= owns || has == was.RefusedCPUs) {
		// The known requests of the containers are older than the resize of the pod. The runtime will report the new
		// requests later.
		return owns, s.p.Pod.Resources, a.key, true
	}
	// A pod never requests less than its containers together. So a sum that is less than their total is out of date.
	if has != 0 && (had == a.count || had == owns || had == was.RefusedCPUs || had > a.count || has > a.count) {
		return has, &after, a.key, true
	}
	return a.count, s.p.Pod.Resources, a.key, true
}

// paidByResize returns the number of CPUs that a pod's requests pay for after one of its containers was resized, and
// the resources that pay for them. The parameter after is the sum of the containers' requests after the resize.
func (s *placer) paidByResize(was *Container, owns int, after *lifecycle.Resources) (n int, sum *lifecycle.Resources) {
	n, sum = s.p.paidAtResize(after)
	resizes := was != s.c // false if the same container is placed again to report the result of its resize
	less, more := resizes && s.resize.requestsLess, resizes && s.resize.requestsMore
	if n < owns && !less {
		// The container does not request less than before. So resources that pay for fewer CPUs than the pod owns are
		// out of date.
		return owns, s.p.Pod.Resources
	}
	if less || !more && s.p.sumOutdated {
		n = min(n, max(owns, was.RefusedCPUs)) // the container does not request more than before, so resources that pay for more CPUs are possibly out of date
	}
	return n, sum
}

// podSum returns the sum of the requests of a pod's live containers in the view. If newVersion is not nil, its request
// counts in place of the request of the container with the same id.
func (n *view) podSum(p *Pod, newVersion *Container) lifecycle.Resources {
	var all []*lifecycle.Resources
	if newVersion != nil {
		all = append(all, &newVersion.Pristine)
	}
	for _, c := range n.containersOf(p.Pod.ID) {
		if (newVersion == nil || c.ID != newVersion.ID) && c.Alive() {
			all = append(all, &c.Pristine)
		}
	}
	return sumOf(all)
}

// listedRequests returns the requests of the pod's live containers in the runtime's list (Synchronize). It leaves out
// the container with the id exceptID.
func (n *view) listedRequests(podID, exceptID string) (requests []*lifecycle.Resources) {
	for _, c := range n.listedContainers[podID] {
		if c.ID != exceptID && c.State != lifecycle.StateStopped {
			requests = append(requests, &c.Resources)
		}
	}
	return requests
}

// sumOf returns the sum of the CPU requests of containers. If all containers have a CPU limit, the result also has the
// sum of the limits.
func sumOf(all []*lifecycle.Resources) lifecycle.Resources {
	var request, limit int64
	set, unlimited := false, false
	for _, r := range all {
		request, set = request+intent.MilliFromShares(r.CPU.Shares.V), set || r.CPU.Shares.V != 0
		milli := intent.LimitMilli(&r.CPU)
		limit, unlimited = limit+milli, unlimited || milli == 0
	}
	var sum lifecycle.Resources
	if set {
		sum.CPU.Shares = lifecycle.Some(intent.SharesFromMilli(request))
	}
	if !unlimited && limit > 0 {
		sum.CPU.Quota = lifecycle.Some(limit * defaultPeriod / milliOfCPU)
	}
	return sum
}

// propagateResize makes new decisions about the other containers that own the same CPUs as a resized container c. These
// are other containers of the pod, or other attempts of the same container.
func (d *draft) propagateResize(c *Container, r *resize) {
	moved, met := r.previousCPUs != c.Assignment.Owned, r.ownedTogether && r.failure == nil
	if !moved && !met {
		return
	}
	for _, other := range d.n.containersOf(c.PodID) {
		follows := other.ID != c.ID && d.n.holdsCPUs(other) && (r.ownedTogether || other.Key == c.Key)
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

// holdsCPUs reports whether a container is alive and either owns CPUs or waits for its reserved CPUs.
func (n *view) holdsCPUs(c *Container) bool {
	return c.Alive() && (c.Assignment.Pool == placement.Exclusive || !c.Stamp.CPUs.Empty() && !n.ledger.ReservedCPUs(c.Key).Empty())
}

// resizeFromOther handles the resize of a container c that owns no CPUs, although the other containers of its pod own
// CPUs together. The agent refused CPUs to c when c was created. But the request of c still counts for the sum of the
// pod's resources, so resizeFromOther adapts the number of CPUs that the other containers own.
func (r *resize) resizeFromOther(d *draft, c *Container) {
	if r.cpusAdapted || !r.requestsLess && !r.requestsMore || !d.n.ownSameCPUs(d.n.pod(c.PodID)) {
		return
	}
	beside := &resize{requestsLess: r.requestsLess, requestsMore: r.requestsMore}
	all := d.n.containersOf(c.PodID)
	i := slices.IndexFunc(all, func(o *Container) bool { return o.ID != c.ID && d.n.holdsCPUs(o) })
	if i < 0 {
		beside.resizeEndedOwner(d, c.PodID)
		return
	}
	o := *all[i]
	beside.previousContainer = all[i]
	d.decideContainer(&o, nil, beside)
	if d.propagateResize(&o, beside); beside.grantsRevoked {
		d.placeRevoked(c.PodID, nil)
	}
	r.failure = beside.failure
}

// resizeEndedOwner adapts the number of CPUs that the containers of a pod own together, if all of these containers have
// ended. When the containers are created again, they get the CPUs that the pod owns after the resize.
func (r *resize) resizeEndedOwner(d *draft, podID string) {
	p := d.n.pod(podID)
	g, owns := d.n.ownedBefore(p, placement.Key{})
	if !owns || placement.IsExternal(g.From) {
		return
	}
	was := &Container{PodID: podID, Key: g.Key}
	was.RefusedCPUs = g.RefusedCPUs
	c := *was
	r.previousContainer = was
	s := d.placer(&c, r)
	if cpus := s.resizedCPUs(g.CPUs); !cpus.Empty() {
		s.giveCPUs(cpus, g.From, "")
	}
	if d.n.ledger.CPUsOfPod(p.Pod.UID) != g.CPUs {
		d.decidePodAgain(p, p.Values)
	}
}

// resizePod adapts the number of CPUs that a pod owns to its changed sum of resources.
func (d *draft) resizePod(podID string) {
	if !d.n.ownSameCPUs(d.n.pod(podID)) {
		return
	}
	all := d.n.containersOf(podID)
	i := slices.IndexFunc(all, func(c *Container) bool { return c.Alive() && c.Assignment.Pool == placement.Exclusive })
	if i < 0 {
		return
	}
	c, r := *all[i], &resize{previousContainer: all[i], podResized: true}
	d.decideContainer(&c, nil, r)
	if d.propagateResize(&c, r); r.grantsRevoked {
		d.placeRevoked(podID, nil)
	}
}

// requestedCount returns how many CPUs a container requests that owns the CPUs in its record; 0 if this is not known.
// If the record has the number that a refused resize requested, this number is the result. Otherwise the number follows
// from the runtime's report. If the containers together request less than their pod, the number is not known, because
// the known requests of the containers or of the pod are then possibly out of date.
func (s *placer) requestedCount(owns int) int {
	a, asks := s.n.requestedCPUs(s.p, s.c.Name, &s.c.Pristine)
	switch {
	case s.c.RefusedCPUs != 0 || !asks:
		return s.c.RefusedCPUs
	case !a.ownedTogether || !s.n.ownSameCPUs(s.p):
		return s.p.paidCPUs(&s.c.Pristine).CPUs
	}
	sum := s.n.podSum(s.p, s.c)
	if s.n.listedContainers != nil {
		sum = sumOf(append(s.n.listedRequests(s.c.PodID, s.c.ID), &s.c.Pristine))
	}
	if n := s.p.paidCPUs(&sum).CPUs; n != 0 && (n >= a.count || owns != a.count) {
		return n
	}
	return 0
}

// setRefusedCPUs handles a container that is created again. If an earlier resize was refused, the container's request
// pays for another number of CPUs than the container owned before. setRefusedCPUs then sets RefusedCPUs to the number
// that the request pays for. It returns true if the container owned CPUs before. It also returns true if its pod owns
// CPUs together and a resize of these CPUs was refused.
func (s *placer) setRefusedCPUs() bool {
	g, owns := s.n.ownedBefore(s.p, s.c.Key)
	if !owns || g.Key != s.c.Key && g.RefusedCPUs == 0 {
		return false
	}
	sum := s.c.Pristine
	if s.n.choosesCPUsForWholePod(s.p) {
		sum = s.n.podSum(s.p, s.c)
	}
	if n, a := s.p.paidCPUs(&sum).CPUs, s.p.paidCPUs(s.p.Pod.Resources).CPUs; n != s.withReservedCPUs(g.CPUs).Len() && (n == g.RefusedCPUs || n > a && g.Key == s.c.Key) {
		s.c.RefusedCPUs = n
	}
	return true
}

// ownedBefore returns the grant that a container had before it is created again: the grant of its earlier attempt. If
// there is no such grant and all containers of the pod own the same CPUs, the result is the grant of another container,
// preferably of one whose resize was refused.
func (n *view) ownedBefore(p *Pod, key placement.Key) (g placement.Grant, owns bool) {
	if g, owns = n.ledger.GrantOf(key); owns || !n.ownSameCPUs(p) {
		return g, owns
	}
	for _, one := range n.ledger.GrantsOfPod(p.Pod.UID) {
		if !owns || g.RefusedCPUs == 0 {
			g, owns = one, true
		}
	}
	return g, owns
}

// reportCPUCountDiffers adds a problem if a container that owns CPUs requests another number of CPUs than it owns.
func (s *placer) reportCPUCountDiffers() {
	owns := s.withReservedCPUs(s.c.Assignment.Owned).Len()
	n, _, key, known := s.targetCPUCount(s.c, owns)
	a, _ := s.n.requestedCPUs(s.p, s.c.Name, &s.c.Pristine)
	if known && n != owns && (a.count != owns || n == s.c.RefusedCPUs) && !s.p.Intent.NUMA.V.Exclusive {
		s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, cpuCountProblem(key, n, owns))
	}
	if !known {
		reason := "the CPU request of the container is not a whole number now, and the container owns %d CPUs"
		if WholeCPUs(&s.c.Pristine) > 0 { // the configuration has changed since the container was created
			reason = "the current configuration gives the container only shared CPUs, and the container still owns %d CPUs"
		}
		s.c.ProblemSummary.Problems = append(s.c.ProblemSummary.Problems, lifecycle.Problem{
			Key: s.c.Assignment.From, Warning: true, Reason: fmt.Sprintf(reason, owns), Then: "the container keeps these CPUs",
		})
	}
}

// cpuCountProblem returns the problem of a container that requests another number of CPUs (asks) than it owns (owns).
func cpuCountProblem(key string, asks, owns int) lifecycle.Problem {
	return lifecycle.Problem{
		Key: key, Value: strconv.Itoa(asks), Warning: true,
		Reason: fmt.Sprintf("the container requests %d CPUs now and owns %d", asks, owns), Then: "the next resize of the container may succeed",
	}
}
