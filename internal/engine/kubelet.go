package engine

import (
	"errors"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// pinned returns the CPUs that the kubelet's static CPU manager gave to a
// container alone, empty for none. Nothing says so in words: in a Guaranteed
// pod, a request of whole CPUs and a cpuset of just as many are the mark
// (Kubernetes 1.36, cm/cpumanager/policy_static.go, guaranteedCPUs). All
// others are told the cpuset of what is left, or none.
func (d *draft) pinned(p *Pod, told *lifecycle.Resources) topology.Set {
	if p == nil || p.Intent.QoS != intent.Guaranteed || told.CPU.CPUs == "" || p.Intent.CPUs.Said() {
		return topology.Set{}
	}
	cpus := d.machine.OnlineOf(told.CPU.CPUs)
	if told.CPU.Shares.V != uint64(cpus.Len())*1024 {
		return topology.Set{}
	}
	return cpus
}

// kubeletGave names the kubelet as who let a container own CPUs.
const kubeletGave = "the kubelet's static CPU manager"

// errKubeletOwns is why nobody else lets containers own CPUs.
var errKubeletOwns = errors.New("authority: kubelet says that its static CPU manager decides who owns CPUs: it gives them to containers of Guaranteed pods that ask for whole ones")

// seatKubelets has a container own what the kubelet gave it, where the kubelet has
// the say. Its CPUs are taken from all others and it is itself left alone.
func (d *draft) seatKubelets(p *Pod, c *Container) bool {
	if !d.policy.KubeletOwns || !d.policy.Place {
		return false
	}
	cpus := d.pinned(p, &c.Pristine)
	if cpus.Empty() || d.ledger.Check(c.Key, cpus) != nil {
		return false
	}
	d.own(p, c, cpus, kubeletGave, "owned by the kubelet's word")
	return true
}

// kubelets returns which of these CPUs the kubelet gave to containers of other
// pods, and a pod that has some. What somebody owns already is the ledger's.
func (d *draft) kubelets(p *Pod, cpus topology.Set) (both topology.Set, owner string) {
	note := func(c *Container) {
		if c == nil || c.Pristine.CPU.CPUs == "" || !c.Alive() || c.Key.PodUID == p.Pod.UID || c.Seat.Pool == placement.Own {
			return
		}
		other := d.pod(c.PodID)
		has := d.pinned(other, &c.Pristine).Minus(d.ledger.Exclusive()).And(cpus)
		if !has.Empty() && (owner == "" || other.FullName() < owner) {
			owner = other.FullName()
		}
		both = both.Union(has)
	}
	if !d.fresh && d.base.listed > 0 {
		for id, c := range d.base.containers {
			if _, changed := d.containers[id]; !changed {
				note(c)
			}
		}
	}
	for _, c := range d.containers {
		note(c)
	}
	return both, owner
}

// besideKubelet reports whether the kubelet gave CPUs to other pods: what it
// tells of a container's CPUs is then what it left for all, and pools keep to
// that, too.
func (d *draft) besideKubelet(p *Pod) bool {
	some, _ := d.kubelets(p, d.machine.Online())
	return !some.Empty()
}

// reseat brings pools in line where the kubelet has given CPUs to somebody by this
// event, or has them back: what it told of others' CPUs counts only as long.
func (d *draft) reseat(p *Plan) {
	if !d.policy.Place || !d.pinsMoved() {
		return
	}
	pod, ctr := p.Pod, p.Container
	for _, id := range slices.Concat(d.base.Containers(), d.order) {
		c := d.container(id)
		if c == nil || !c.Alive() || c.Pristine.CPU.CPUs == "" || c.Seat.Pool == placement.Own || slices.Contains(p.Reseated, id) {
			continue
		}
		if p.Pod = d.pod(c.PodID); p.Pod == nil || p.Pod.Stopped || d.within(p.Pod, c) == c.Seat.Within {
			continue
		}
		n := *c
		d.settle(p, &n, nil)
		if ctr == nil || ctr.ID != id {
			p.Reseated = append(p.Reseated, id)
			continue
		}
		ctr = &n
	}
	p.Pod, p.Container = pod, ctr
}

// pinsMoved reports whether the kubelet has given CPUs by this event or has them
// back, as far as nobody owns them by the ledger.
func (d *draft) pinsMoved() bool {
	pins := func(pod *Pod, c *Container) topology.Set {
		if c == nil || !c.Alive() || c.Seat.Pool == placement.Own {
			return topology.Set{}
		}
		return d.pinned(pod, &c.Pristine)
	}
	return slices.ContainsFunc(d.order, func(id string) bool {
		now, was := d.containers[id], d.base.containers[id]
		var before, after topology.Set
		if was != nil {
			before = pins(d.base.pods[was.PodID], was)
		}
		if now != nil {
			after = pins(d.pod(now.PodID), now)
		}
		return before != after
	})
}
