package engine

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// assigned returns the CPUs a scheduler assigned to the pod, if they can be
// granted to key. told are the resources of the container, nil for the pod
// itself. The error is a sentence for people.
func (d *draft) assigned(p *Pod, key placement.Key, told *lifecycle.Resources) (topology.Set, error) {
	if !p.Intent.CPUs.Said() || !d.policy.Place {
		return topology.Set{}, nil
	}
	list := topology.FormatList(p.Intent.CPUs.V)
	cpus, err := d.machine.ParseCPUs(list)
	if all := d.machine.PlacesOf(list); all.Len() == len(p.Intent.CPUs.V) && d.heldBy(p).Contains(all) {
		// They were granted, and some may have gone offline since.
		if cpus, err = all.And(d.reach(p)), nil; cpus.Empty() {
			err = errors.New("these CPUs, which it owns, are offline")
		}
	}
	if err != nil {
		return topology.Set{}, err
	}
	if g, owns := d.ledger.Of(key); owns && g.CPUs == cpus {
		// The number was measured when they were granted. A later request does
		// not take them away from what runs.
		return cpus, d.grantable(p, key, cpus)
	}
	if err := d.terms(p).Elsewhere; err != nil {
		return topology.Set{}, err
	}
	if err := d.policy.Rules.CPUs(p.Pod.Namespace, cpus.Len(), p.means(p.Pod.Resources, told)); err != nil {
		return topology.Set{}, err
	}
	if both, owner := d.kubelets(p, cpus); !both.Empty() {
		return cpus, fmt.Errorf("CPUs %s were given to %s by the kubelet's static CPU manager", intent.Printable(d.machine.Format(both)), owner)
	}
	return cpus, d.grantable(p, key, cpus)
}

// refusesCPUs reports whether pods of a namespace may own no CPU, whoever
// assigned them.
func (d *draft) refusesCPUs(namespace string) bool {
	return d.policy.Rules.For(intent.AssignedCPUs, namespace).Decision == intent.Refuse
}

// grantable reports in a sentence why CPUs cannot be owned by key.
func (d *draft) grantable(p *Pod, key placement.Key, cpus topology.Set) error {
	pools := &d.policy.Pools
	format := func(s topology.Set) string { return intent.Printable(d.machine.Format(s)) }
	if both := cpus.And(pools.Reserved); !both.Empty() {
		return fmt.Errorf("CPUs %s are reserved by pools.reserved", format(both))
	}
	if out := cpus.Minus(p.Within); !p.Within.Empty() && !out.Empty() {
		return fmt.Errorf("CPUs %s are not allowed in the pod's cgroup", format(out))
	}
	var taken *placement.Taken
	if err := d.ledger.Check(key, cpus); errors.As(err, &taken) {
		return fmt.Errorf("CPUs %s are owned by %s", format(taken.CPUs), taken.Owner.Pod)
	}
	if pools.ForAll().Minus(d.ledger.Exclusive()).Minus(cpus).Empty() {
		return errors.New("no CPU would be left for all other containers")
	}
	return nil
}

// seat finds where a container sits and puts it into c. Owned CPUs are
// recorded in the ledger.
func (d *draft) seat(p *Pod, c *Container, rec *Record) { //nolint:gocognit // one case after the other; to be cut with the rest of the heart
	c.Unplaced = !d.policy.Place && c.Born.Empty() && d.unplaced(c, rec)
	if d.seatKubelets(p, c) || d.seatRecorded(p, c, rec) {
		return
	}
	var cpus topology.Set
	var err error
	isNew := false
	old := d.container(c.ID)
	if old != nil && old.Alive() && old.Seat.Pool != placement.Own && !old.Unplaced || rec != nil && rec.CPUs == "" && !rec.Unplaced {
		if d.seatAgain(p, c) {
			return
		}
		// It was refused when it was created, and its record says so: given
		// the CPUs now, it would lose them at the next restart.
		if _, err = d.assigned(p, c.Key, &c.Pristine); err == nil && p.Intent.CPUs.Said() && d.policy.Place {
			err = errors.New("they could not be granted when the container was created; it can have them when it is created anew")
		}
	} else {
		cpus, err = d.assigned(p, c.Key, &c.Pristine)
		isNew = true
	}
	switch {
	case err != nil && isNew && d.waitsAnew(p, c):
	case err != nil && !c.Born.Empty() && c.Born.And(d.reach(p)).Empty():
		if rec == nil { // else it is told already
			d.waitFor(p, c, p.Intent.CPUs.Key)
		}
	case err != nil:
		c.Trouble = append(c.Trouble, notGranted(p, err))
	case !cpus.Empty():
		d.own(p, c, cpus, p.Intent.CPUs.Key, "assigned by the scheduler")
		return
	case isNew && (rec == nil || rec.CPUs == "") && d.seatChosen(p, c):
		return
	case !isNew:
		d.sayRefused(p, c)
	}
	d.share(p, c, isNew)
}

// seatRecorded gives a container the CPUs that its record names: what runs stays
// where it is, if that is still possible.
func (d *draft) seatRecorded(p *Pod, c *Container, rec *Record) bool {
	if rec == nil || rec.CPUs == "" || !d.policy.Place || d.refusesCPUs(p.Pod.Namespace) {
		return false
	}
	from := cmp.Or(p.Intent.CPUs.Key, p.Intent.Class.Key, intent.KoordResourceStatus)
	cpus := d.machine.PlacesOf(rec.CPUs).And(d.reach(p))
	if cpus.Empty() {
		d.waitFor(p, c, from)
		return false
	}
	if d.grantable(p, c.Key, cpus) != nil {
		if cpus.And(d.policy.Pools.Reserved).Empty() {
			// Somebody else has them by now: it would move when they are free,
			// at a restart. What is reserved comes back with the configuration.
			c.Born, c.Disowned = topology.Set{}, true
		}
		return false
	}
	d.own(p, c, cpus, from, "owned since it was created")
	owns := d.withOffline(c, cpus).Len()
	if asks := d.asksInVain(p, c, owns); asks != 0 && asks != owns && !p.Intent.CPUs.Said() && !p.Intent.NUMA.V.Exclusive {
		c.Trouble = append(c.Trouble, otherNumber(c.SeatFrom, asks, owns))
	}
	return true
}

// sayRefused reports that a container owns no CPUs although it asks for some:
// what was refused when it was created stays so.
func (d *draft) sayRefused(p *Pod, c *Container) {
	if a, ok := d.asks(p, &c.Pristine); ok && !c.Born.Empty() {
		d.waitFor(p, c, a.key)
	} else if ok && a.n == 0 {
		c.Trouble = append(c.Trouble, lifecycle.Problem{
			Key: a.key, Reason: noWhole(p, p.Pod.Resources, &c.Pristine).Error(), Refused: true, Then: "the container runs in a shared pool",
		})
	} else if ok {
		c.Trouble = append(c.Trouble, lifecycle.Problem{
			Key: a.key, Reason: "no CPUs were granted when the container was created; it can have them when it is created anew",
			Refused: true, Then: "the container runs in a shared pool",
		})
	}
}

// seatChosen gives a container CPUs that the agent chooses, where it is to have
// some. One that had some once and cannot have these keeps none: other CPUs would
// not be those its record names.
func (d *draft) seatChosen(p *Pod, c *Container) bool {
	old := d.container(c.ID)
	switch {
	case p.Intent.CPUs.Said() || !d.policy.Place || !d.terms(p).Chooses:
		return false
	case old != nil && old.Alive() && old.Seat.Pool == placement.Own && old.SeatFrom != placement.ByKubelet && d.stays(p, old):
		cpus := d.ownedBy(old).And(d.reach(p))
		if d.resizing != nil {
			if cpus = d.resized(p, c, cpus); cpus.Empty() {
				return false
			}
		}
		d.own(p, c, cpus, old.SeatFrom, old.SeatWhy)
		if d.resizing == nil || d.resizing.failed == nil {
			d.sayResized(p, c)
		}
		return true
	case !c.Born.Empty():
		return false
	}
	if d.waitsAnew(p, c) {
		return false
	}
	cpus, key, why, err := d.choose(p, c)
	switch {
	case key == "" || err == nil && cpus.Empty():
		return false
	case err != nil:
		q := lifecycle.Problem{Key: key, Reason: err.Error(), Refused: true, Then: "the container runs in a shared pool"}
		if refusal := (*intent.Refusal)(nil); errors.As(err, &refusal) {
			q.Rule = refusal.Rule
		}
		c.Trouble = append(c.Trouble, q)
		return false
	}
	again := d.createdAnew(p, c)
	d.own(p, c, cpus, key, why)
	if again {
		d.sayResized(p, c)
	}
	return true
}

// ownedBy returns what an owner has: the ledger knows of a resize before its
// containers do.
func (d *draft) ownedBy(c *Container) topology.Set {
	if g, owns := d.ledger.Of(c.Key); owns {
		return g.CPUs
	}
	return c.Seat.Owned
}

// share seats a container in a pool.
func (d *draft) share(p *Pod, c *Container, isNew bool) {
	a := d.shares(p, c, isNew, topology.Set{})
	c.Seat, c.SeatFrom, c.SeatWhy, c.Home = a.Seat, a.From, a.Why, a.Home
	c.Trouble = append(c.Trouble, a.Problems...)
	c.Seat.Within = d.within(p, c)
	d.shareOutside(p, c)
	if _, ok := d.layout().CPUs(c.Seat); !ok {
		c.Trouble = append(c.Trouble, lifecycle.Problem{
			Key: "cpuset.cpus", Value: d.machine.Format(c.Seat.Within),
			Reason: "every CPU this container may use is owned by another", Then: "it is given CPUs outside",
		})
	}
}

// within bounds a seat in a pool: by the pod's cgroup, and by what the runtime
// was asked for where that counts.
func (d *draft) within(p *Pod, c *Container) topology.Set {
	if !c.bound.Empty() && c.Seat.Pool == placement.Rest {
		if p.Within.Empty() || c.bound.And(p.Within).Empty() {
			return c.bound
		}
		return c.bound.And(p.Within)
	}
	if c.Pristine.CPU.CPUs == "" || c.Seat.Pool != placement.Rest && !d.besideKubelet(p) {
		return p.Within
	}
	asked := d.machine.OnlineOf(c.Pristine.CPU.CPUs)
	if p.Within.Empty() {
		return asked
	}
	return asked.And(p.Within)
}

// unplaced reports whether nobody ever decided if a container may own CPUs:
// placement has been off for as long as it lives.
func (d *draft) unplaced(c *Container, rec *Record) bool {
	if old := d.container(c.ID); old != nil {
		return old.Unplaced
	}
	return rec == nil || rec.Unplaced
}

// notGranted tells of assigned CPUs that a container does not get.
func notGranted(p *Pod, err error) lifecycle.Problem {
	q := lifecycle.Problem{
		Key: p.Intent.CPUs.Key, Value: intent.Printable(topology.FormatList(p.Intent.CPUs.V)), Refused: true,
		Reason: err.Error(), Then: "the container runs in a shared pool",
	}
	if refusal := (*intent.Refusal)(nil); errors.As(err, &refusal) {
		q.Rule = refusal.Rule
	}
	return q
}

func (d *draft) own(p *Pod, c *Container, cpus topology.Set, from, why string) {
	d.ownNotOutside(c, cpus)
	c.Seat = placement.Seat{Pool: placement.Own, Owned: cpus}
	// Owned CPUs that went offline are its own when they come back.
	gone := d.missing(p, c).Minus(cpus)
	c.Born = cpus.Union(gone)
	c.SeatFrom, c.SeatWhy = from, why
	g := d.grantOf(p, c.Key, cpus, from)
	g.Wanted = c.Wanted
	d.grant(g)
	d.keep(p, c.Key, gone, from)
	d.sayAway(c, from, gone, "it runs on those that are left")
}

// grantOf makes a grant of some CPUs to a container of a pod.
func (d *draft) grantOf(p *Pod, key placement.Key, cpus topology.Set, from string) placement.Grant {
	t := d.terms(p)
	return placement.Grant{Key: key, Pod: p.FullName(), CPUs: cpus, From: from, Lent: t.Lent, Alone: t.Alone}
}
