package engine

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/topology"
)

// resize is a container's change of what it asks for, while it is decided.
type resize struct {
	was    *Container // as it was before
	before topology.Set
	// failed is why it could not own as many CPUs as it asks for now.
	failed error
	// ofPod: the sum of the pod is what changed.
	ofPod bool
	// all: whatever the pod's containers own is the same.
	all bool
}

// ownsAsOne reports whether all containers of a pod own the same CPUs. They do not
// where the pod's sum was not told when they were created.
func (d *draft) ownsAsOne(p *Pod) bool {
	all := d.ledger.OfPod(p.Pod.UID)
	for _, g := range d.ledger.Grants() {
		if g.Key.PodUID == p.Pod.UID && g.CPUs != all {
			return false
		}
	}
	return d.chosenForPod(p)
}

// resized brings what an owner has in line with what it asks for by now: more
// CPUs beside those it has, or the best part of those. Either all of it happens
// or nothing; then the problem says why.
func (d *draft) resized(p *Pod, c *Container, have topology.Set) topology.Set {
	r := d.resizing
	r.before, r.all = have, d.ownsAsOne(p)
	owned := d.withOffline(c, have).Len()
	n, sum, key, _ := d.wanted(p, c, r.was, owned)
	cpus, err := d.resizeTo(p, c, have, n, sum)
	if c.Wanted = 0; err != nil {
		c.Wanted = n
		r.failed = fmt.Errorf("it asks for %d CPUs now and owns %d: %w", n, owned, err)
		c.Trouble = append(c.Trouble, lifecycle.Problem{
			Key: key, Value: strconv.Itoa(n), Refused: true, Reason: r.failed.Error(), Then: "it keeps those it owns, and no more",
		})
		return have
	}
	if cpus.Empty() && d.ledger.Kept(c.Key).Empty() {
		d.lostAll(p, c, key, owned)
		c.Born, c.touched = topology.Set{}, true
		for _, g := range d.ledger.HeldByPod(p.Pod.UID) {
			if r.all || g.Key == c.Key {
				d.revoke(p, g.Key)
			}
		}
		return cpus
	}
	if !r.all {
		return cpus
	}
	for _, g := range append(d.ledger.Grants(), d.ledger.AllKept()...) { // whatever the pod's containers own is the same
		if g.Key.PodUID == p.Pod.UID && g.Key != c.Key {
			if g.CPUs = cpus; !cpus.Empty() {
				d.grant(g)
			}
			d.keep(p, g.Key, d.ledger.Kept(c.Key), g.From)
		}
	}
	return cpus
}

// resizeTo chooses the CPUs of an owner of some that is to have n. CPUs of its
// own that are offline count: they are the first to be given up.
func (d *draft) resizeTo(p *Pod, c *Container, have topology.Set, n int, sum *lifecycle.Resources) (topology.Set, error) {
	all := d.withOffline(c, have)
	switch numa := p.Intent.NUMA.V; {
	case n == all.Len() || numa.Exclusive && n > 0 && n < all.Len():
		return have, nil
	case numa.Exclusive:
		return have, errors.New("whole NUMA nodes are taken when a container is created")
	case n > all.Len() && have.Empty():
		return have, errors.New("those it owns are offline, and more are chosen beside them alone")
	case n > all.Len():
		return d.growTo(p, c, have, n, sum)
	}
	kept := d.shrinkTo(p, c, have, all.Minus(have), n)
	d.keep(p, c.Key, c.Born, c.SeatFrom)
	return kept, nil
}

// shrinkTo chooses which of its CPUs an owner keeps: as many as it pays for, whatever
// else it asks for. Those that are out of its reach are given up first; what it keeps
// of them is its Born.
func (d *draft) shrinkTo(p *Pod, c *Container, have, away topology.Set, n int) topology.Set {
	c.Born = first(away, n-have.Len())
	if n == 0 || have.Empty() {
		return topology.Set{}
	}
	w := choose.Want{N: min(n, have.Len()), From: have, Cores: cores(p.Intent)}
	if p.Intent.NUMA.V.Even {
		w.Spread, w.Even = []topology.Level{topology.NodeLevel}, true
	}
	kept, err := d.policy.Choosing.Tree.Choose(w)
	if err != nil {
		c.Trouble = append(c.Trouble, lifecycle.Problem{
			Key: cmp.Or(c.SeatFrom, p.Intent.Class.Key), Value: strconv.Itoa(n), Warning: true,
			Reason: fmt.Sprintf("it asks for %d CPUs now and owned %d: %s", n, d.withOffline(c, have).Len(), err),
			Then:   fmt.Sprintf("it keeps %d of them all the same", w.N),
		})
		w.Cores, w.Spread, w.Even = choose.AnyThread, nil, false
		if kept, err = d.policy.Choosing.Tree.Choose(w); err != nil {
			return topology.Set{}
		}
	}
	return kept.CPUs
}

// growTo chooses more CPUs for an owner. One that is bound to NUMA nodes gets
// them there: its memory does not move.
func (d *draft) growTo(p *Pod, c *Container, have topology.Set, n int, sum *lifecycle.Resources) (topology.Set, error) {
	if err := d.policy.Rules.CPUs(p.Pod.Namespace, n, p.means(sum, &c.Pristine)); err != nil {
		return have, err
	}
	w := d.question(p, c, n-d.withOffline(c, have).Len())
	w.Beside = have
	if p.Intent.NUMA.Said() {
		w.From = w.From.And(d.machine.Spread(topology.NodeLevel, d.withOffline(c, have)))
	}
	if nodes := d.machine.Count(topology.NodeLevel, d.withOffline(c, have)); p.Intent.NUMA.V.Even {
		if d.machine.Count(topology.NodeLevel, w.From) < nodes {
			return have, &choose.ShortError{Want: w.N, Have: w.From.Len(), What: "to choose from, on fewer NUMA nodes than are to share them"}
		}
		w.Spread, w.Even = []topology.Level{topology.NodeLevel}, true
	}
	more, err := d.policy.Choosing.Tree.Choose(w)
	if err != nil {
		return have, err
	}
	return have.Union(more.CPUs), d.grantable(p, c.Key, have.Union(more.CPUs))
}

// wanted is how many CPUs a container is to own that owns some, and the sum of
// its pod's resources; known is false where nothing says how many.
//
// Where all containers of a pod own the same, their number follows from the
// pod's sum. Not every runtime tells when that changes, and none tells it
// together with the container's: where the containers' requests were what the
// pod owned CPUs for, they are so still. Where they were not, as in a pod with
// resources of its own, the pod's sum counts.
func (d *draft) wanted(p *Pod, c, was *Container, owns int) (n int, sum *lifecycle.Resources, key string, known bool) {
	a, ok := d.asks(p, &c.Pristine)
	if !ok {
		return min(owns, p.due(&c.Pristine).CPUs), nil, cmp.Or(c.SeatFrom, was.SeatFrom), false
	}
	if a.pod && !d.ownsAsOne(p) {
		a = ask{n: p.due(&c.Pristine).CPUs, key: a.key}
	}
	if !a.pod {
		return a.n, p.Pod.Resources, a.key, true
	}
	before, after := d.podSum(p, was), d.podSum(p, c)
	if r := d.resizing; r != nil && !r.ofPod {
		n, sum := d.paidNow(p, &after)
		less, more := lower(&was.Pristine, &c.Pristine), lower(&c.Pristine, &was.Pristine)
		if n < owns && !less {
			// It asks for no less, so a lower sum is one of before.
			return owns, p.Pod.Resources, a.key, true
		}
		if (less || !more) && was.Wanted == 0 {
			n = min(n, owns) // who asks for no more gets no more: a higher sum is one of before
		}
		return n, sum, a.key, true
	}
	had, has := p.due(&before).CPUs, p.due(&after).CPUs
	if r := d.resizing; r != nil && has > owns && a.n != has && (a.n <= owns || has == was.Wanted) {
		// Its containers' requests are of before, when they were refused. What they ask for now comes next.
		return owns, p.Pod.Resources, a.key, true
	}
	// A pod never asks for less than its containers do: a lower sum is one of before.
	if has != 0 && (had == a.n || had == owns || had == was.Wanted || had > a.n || has > a.n) {
		return has, &after, a.key, true
	}
	return a.n, p.Pod.Resources, a.key, true
}

// podSum adds up what a pod's live containers ask for, one of them as it is given; nil
// for none.
func (d *draft) podSum(p *Pod, one *Container) lifecycle.Resources {
	var all []*lifecycle.Resources
	if one != nil {
		all = append(all, &one.Pristine)
	}
	for _, c := range d.containersOf(p.Pod.ID) {
		if (one == nil || c.ID != one.ID) && c.Alive() {
			all = append(all, &c.Pristine)
		}
	}
	return sumOf(all)
}

// sumOf adds up the CPU shares of containers, and their quotas where all have one.
func sumOf(all []*lifecycle.Resources) lifecycle.Resources {
	var request, limit int64
	told, unlimited := false, false
	for _, r := range all {
		request, told = request+intent.SharesMilli(r.CPU.Shares.V), told || r.CPU.Shares.V != 0
		milli := intent.LimitMilli(&r.CPU)
		limit, unlimited = limit+milli, unlimited || milli == 0
	}
	var sum lifecycle.Resources
	if told {
		sum.CPU.Shares = lifecycle.Some(intent.MilliShares(request))
	}
	if !unlimited && limit > 0 {
		sum.CPU.Quota = lifecycle.Some(limit * defaultPeriod / milliOfCPU)
	}
	return sum
}

// containersOf returns a pod's containers as they are with the draft's changes.
func (d *draft) containersOf(podID string) []*Container {
	var out []*Container
	seen := map[string]bool{}
	note := func(id string) {
		if c := d.container(id); c != nil && c.PodID == podID && !seen[id] {
			seen[id] = true
			out = append(out, c)
		}
	}
	for _, id := range d.base.byPod[podID] {
		note(id)
	}
	for _, id := range d.order {
		note(id)
	}
	return out
}

// follow seats the other containers of a pod that was resized on what it owns
// now, or other attempts at the container.
func (d *draft) follow(p *Plan, c *Container) {
	r := d.resizing
	moved, met := r.before != c.Seat.Owned, r.all && r.failed == nil
	if !moved && !met {
		return
	}
	d.resizing = nil
	for _, other := range d.containersOf(c.PodID) {
		owns := other.Seat.Pool == placement.Own || !other.Born.Empty() && !d.ledger.Kept(other.Key).Empty()
		follows := other.ID != c.ID && other.Alive() && owns && (r.all || other.Key == c.Key)
		if follows && (moved || other.Wanted != 0) {
			n := *other
			n.Born = c.Born
			if met { // the number is the pod's
				n.Wanted = 0
			}
			d.settle(p, &n, nil)
		}
	}
	p.Container = c
}

// resizePod has a pod whose sum of resources changed own as many CPUs as that
// says.
func (d *draft) resizePod(p *Plan) {
	if !d.ownsAsOne(p.Pod) {
		return
	}
	for _, c := range d.containersOf(p.Pod.Pod.ID) {
		if c.Alive() && c.Seat.Pool == placement.Own {
			n := *c
			d.resizing = &resize{was: c, ofPod: true}
			d.settle(p, &n, nil)
			d.follow(p, &n)
			break
		}
	}
	d.resizing = nil
	d.reseatRevoked(p, nil)
	p.Container = nil
}

// asksInVain returns how many CPUs an owner with a record asks for that owns another
// number; 0 where nothing tells. Without what was noted at a resize that was refused,
// it is seen from what the runtime tells. Where containers ask for less than their pod,
// either may be of before.
func (d *draft) asksInVain(p *Pod, c *Container, owns int) int {
	a, asks := d.asks(p, &c.Pristine)
	switch {
	case c.Wanted != 0 || !asks:
		return c.Wanted
	case !a.pod || !d.ownsAsOne(p):
		return p.due(&c.Pristine).CPUs
	}
	sum := d.podSum(p, c)
	if d.listed != nil {
		all := []*lifecycle.Resources{&c.Pristine}
		for _, other := range d.listed[c.PodID] {
			if other.ID != c.ID && other.State != lifecycle.StateStopped {
				all = append(all, &other.Resources)
			}
		}
		sum = sumOf(all)
	}
	if n := p.due(&sum).CPUs; n != 0 && (n >= a.n || owns != a.n) {
		return n
	}
	return 0
}

// createdAnew carries over to a container that is created anew what the one before
// it asked for in vain, and reports whether there was one that owned CPUs.
func (d *draft) createdAnew(p *Pod, c *Container) bool {
	g, owns := d.ledger.Of(c.Key)
	if !owns {
		return false
	}
	sum := c.Pristine
	if d.chosenForPod(p) {
		sum = d.podSum(p, c)
	}
	if n, a := p.due(&sum).CPUs, p.due(p.Pod.Resources).CPUs; n != d.withOffline(c, g.CPUs).Len() && (n == g.Wanted || n > a) {
		c.Wanted = n
	}
	return true
}

// sayResized reports that an owner asks for another number of CPUs than it has.
func (d *draft) sayResized(p *Pod, c *Container) {
	owns := d.withOffline(c, c.Seat.Owned).Len()
	n, _, key, known := d.wanted(p, c, c, owns)
	a, _ := d.asks(p, &c.Pristine)
	if known && n != owns && (a.n != owns || n == c.Wanted) && !p.Intent.NUMA.V.Exclusive {
		c.Trouble = append(c.Trouble, otherNumber(key, n, owns))
	}
	if !known {
		c.Trouble = append(c.Trouble, lifecycle.Problem{
			Key: c.SeatFrom, Warning: true, Reason: fmt.Sprintf("it asks for no number of CPUs to own now and owns %d", owns), Then: "it keeps them",
		})
	}
}

// otherNumber tells that an owner asks for another number of CPUs than it has.
func otherNumber(key string, asks, owns int) lifecycle.Problem {
	return lifecycle.Problem{
		Key: key, Value: strconv.Itoa(asks), Warning: true,
		Reason: fmt.Sprintf("it asks for %d CPUs now and owns %d", asks, owns), Then: "it may own as many at its next resize",
	}
}
