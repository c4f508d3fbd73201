package engine

import (
	"errors"
	"fmt"
	"slices"

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
	cpus, err := d.machine.ParseCPUs(topology.FormatList(p.Intent.CPUs.V))
	if err != nil {
		return topology.Set{}, err
	}
	if g, owns := d.ledger.Of(key); owns && g.CPUs == cpus {
		// The number was measured when they were granted. A later request does
		// not take them away from what runs.
		return cpus, d.grantable(p, key, cpus)
	}
	if err := d.policy.Rules.CPUs(p.Pod.Namespace, cpus.Len(), p.Pod.Resources, told); err != nil {
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
	if pools.Online.Minus(d.ledger.Exclusive()).Minus(cpus).Empty() {
		return errors.New("no CPU would be left for all other containers")
	}
	return nil
}

// seat finds where a container sits and puts it into c. Owned CPUs are
// recorded in the ledger.
func (d *draft) seat(p *Pod, c *Container, rec *Record) {
	c.Unplaced = !d.policy.Place && c.Born.Empty() && d.unplaced(c, rec)
	if rec != nil && rec.CPUs != "" && d.policy.Place && !d.refusesCPUs(p.Pod.Namespace) {
		// What runs stays where it is, if that is still possible.
		cpus := d.machine.OnlineOf(rec.CPUs)
		if err := d.grantable(p, c.Key, cpus); err == nil && !cpus.Empty() {
			d.own(p, c, cpus, intent.KoordResourceStatus, "owned since it was created")
			return
		}
	}
	var cpus topology.Set
	var err error
	old := d.container(c.ID)
	if old != nil && old.Alive() && old.Seat.Pool != placement.Own && !old.Unplaced || rec != nil && rec.CPUs == "" && !rec.Unplaced {
		// It was refused when it was created, and its record says so: given
		// the CPUs now, it would lose them at the next restart.
		if _, err = d.assigned(p, c.Key, &c.Pristine); err == nil && p.Intent.CPUs.Said() && d.policy.Place {
			err = errors.New("they could not be granted when the container was created; it can have them when it is created anew")
		}
	} else {
		cpus, err = d.assigned(p, c.Key, &c.Pristine)
	}
	switch {
	case err != nil:
		c.Trouble = append(c.Trouble, notGranted(p, err))
	case !cpus.Empty():
		d.own(p, c, cpus, p.Intent.CPUs.Key, "assigned by the scheduler")
		return
	}
	d.share(p, c)
}

// share seats a container in a pool.
func (d *draft) share(p *Pod, c *Container) {
	c.Seat, c.SeatFrom, c.SeatWhy = d.sharedSeat(p, c)
	c.Seat.Within = d.within(p, c)
	if _, ok := d.policy.Pools.CPUs(c.Seat, d.ledger.Exclusive()); !ok {
		c.Trouble = append(c.Trouble, lifecycle.Problem{
			Key: "cpuset.cpus", Value: d.machine.Format(c.Seat.Within),
			Reason: "every CPU this container may use is owned by another", Then: "it is given CPUs outside",
		})
	}
}

// within bounds a seat in a pool: by the pod's cgroup, and by what the runtime
// was asked for where that counts.
func (d *draft) within(p *Pod, c *Container) topology.Set {
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
	c.Seat = placement.Seat{Pool: placement.Own, Owned: cpus}
	c.Born = cpus
	c.SeatFrom, c.SeatWhy = from, why
	d.grant(placement.Grant{Key: c.Key, Pod: p.FullName(), CPUs: cpus, From: from})
}

// sharedSeat follows Koordinator's order of cases for pods without assigned
// CPUs (plugin CPUSetAllocator, v1.7), with the differences hook.CPUSet states.
func (d *draft) sharedSeat(p *Pod, c *Container) (seat placement.Seat, from, why string) {
	in, pol := p.Intent, d.policy
	class, key := in.Class.V, in.Class.Key
	switch {
	case !pol.Place:
		return placement.Seat{}, "", ""
	case in.Nodes.Said() && class != intent.Reclaimed:
		return d.near(p, c, placement.Shared), in.Nodes.Key, "the shared pool of the NUMA nodes the scheduler chose"
	case in.Nodes.Said() && pol.ReclaimedByNUMA:
		return d.near(p, c, placement.Reclaimed), in.Nodes.Key, "the reclaimed pool of the NUMA nodes the scheduler chose"
	case class == intent.System && !pol.Pools.System.Empty():
		return placement.Seat{Pool: placement.System}, key, "the system pool"
	case class == intent.Reclaimed:
		return placement.Seat{Pool: placement.Reclaimed}, key, "the reclaimed pool"
	case class == intent.Shared:
		return placement.Seat{Pool: placement.Shared}, key, "the shared pool"
	case class == intent.Dedicated:
		return placement.Seat{Pool: placement.Shared}, key, "the shared pool, for want of assigned CPUs"
	case pol.UnlabelledShared && in.QoS != intent.BestEffort:
		return placement.Seat{Pool: placement.Shared}, "hooks.cpuset.unlabelled", "the shared pool, where pods without a class go"
	}
	return placement.Seat{}, "", "kept clear of CPUs others own"
}

// near narrows a pool to the NUMA nodes a scheduler chose.
func (d *draft) near(p *Pod, c *Container, pool placement.Pool) placement.Seat {
	seat := placement.Seat{Pool: pool}
	var unknown []int
	for _, id := range p.Intent.Nodes.V {
		if n, ok := d.machine.Node(id); ok && !n.CPUs.Empty() {
			seat.Near = seat.Near.Union(n.CPUs)
			continue
		}
		unknown = append(unknown, id)
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		c.Trouble = append(c.Trouble, lifecycle.Problem{
			Key: p.Intent.Nodes.Key, Value: intent.Printable(topology.FormatList(unknown)),
			Reason: "this node has no such NUMA node with CPUs", Refused: true,
		})
	}
	return seat
}
