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

// pinned returns the CPUs that the kubelet's static CPU manager gave to a
// container alone, empty for none. What the kubelet says of that by its
// PodResources API counts; where it does not, what it asks of the runtime tells.
func (d *draft) pinned(p *Pod, container string, told *lifecycle.Resources) topology.Set {
	if given, ok := d.given(p, container); ok {
		return d.machine.OnlineIDs(given.CPUs)
	}
	return d.inferred(p, told)
}

// given returns what the kubelet says that its managers gave a container; ok is
// false where nobody heard it.
func (d *draft) given(p *Pod, container string) (given lifecycle.StaticGrant, ok bool) {
	if p == nil || !d.policy.KubeletOwns {
		return given, false
	}
	given = p.Granted.StaticOf(container)
	return given, given.Told
}

// inferred is pinned by what the runtime was asked for. Nothing there says so in
// words: in a Guaranteed pod, a request of whole CPUs and a cpuset of just as many
// are the mark (Kubernetes 1.36, cm/cpumanager/policy_static.go,
// guaranteedCPUs). All others are told the cpuset of what is left, or none.
func (d *draft) inferred(p *Pod, told *lifecycle.Resources) topology.Set {
	if p == nil || p.Intent.QoS != intent.Guaranteed || told.CPU.CPUs == "" || p.Intent.CPUs.Said() {
		return topology.Set{}
	}
	// CPUs that went offline are its own all the same.
	if told.CPU.Shares.V != uint64(d.machine.PlacesOf(told.CPU.CPUs).Len())*sharesOfCPU {
		return topology.Set{}
	}
	return d.machine.OnlineOf(told.CPU.CPUs)
}

// kubeletGave names the kubelet as who let a container own CPUs.
const kubeletGave = "the kubelet's static CPU manager"

// errKubeletOwns is why nobody else lets containers own CPUs.
var errKubeletOwns = errors.New("authority: kubelet says that its static CPU manager decides who owns CPUs: it gives them to containers of Guaranteed pods that ask for whole ones")

// seatKubelets has a container own what the kubelet gave it, where the kubelet has
// the say. Its CPUs are taken from all others and it is itself left alone. They are
// not put on record: they are the kubelet's to tell, after a restart as well.
func (d *draft) seatKubelets(p *Pod, c *Container) bool {
	if !d.policy.KubeletOwns || !d.policy.Place {
		return false
	}
	cpus := d.pinned(p, c.Name, &c.Pristine)
	d.compareKubelets(p, c)
	if cpus.Empty() {
		if g, owns := d.ledger.Of(c.Key); owns && g.From == kubeletGave {
			d.dropKey(c.Key)
		}
		return false
	}
	if taken := d.takenFrom(c.Key, cpus); taken != nil {
		c.Trouble = append(c.Trouble, lifecycle.Problem{
			Key: "authority", Value: d.machine.Format(cpus), Refused: true, Then: "it owns none of them",
			Reason: fmt.Sprintf("the kubelet gave it CPUs %s that %s owns", d.machine.Format(taken.CPUs), intent.Printable(taken.Owner.Pod)),
		})
		return false
	}
	why := "owned by the kubelet's word: its request is one of whole CPUs, and its cpuset has as many"
	if _, said := d.given(p, c.Name); said {
		why = "owned by the kubelet's word, which its PodResources API tells"
	}
	d.own(p, c, cpus, kubeletGave, why)
	c.Born = topology.Set{}
	all := d.machine.PlacesOf(c.Pristine.CPU.CPUs)
	if given, said := d.given(p, c.Name); said {
		all = d.machine.PlacesOf(topology.FormatList(given.CPUs))
	}
	d.sayAway(c, "authority", all.Minus(d.machine.Online()), "it runs on those that are left")
	return true
}

// compareKubelets reports where the kubelet tells two things: by its PodResources
// API, which counts, and by what it asks of the runtime.
func (d *draft) compareKubelets(p *Pod, c *Container) {
	given, said := d.given(p, c.Name)
	if !said {
		return
	}
	word := d.machine.OnlineIDs(given.CPUs)
	switch asked := d.machine.OnlineOf(c.Pristine.CPU.CPUs); {
	case !word.Empty() && !asked.Empty() && asked != word:
		c.Trouble = append(c.Trouble, lifecycle.Problem{
			Key: "authority", Value: d.machine.Format(asked), Warning: true,
			Reason: fmt.Sprintf("the kubelet asks for these CPUs, and its PodResources API says that it gave the container CPUs %s", d.machine.Format(word)),
			Then:   "what the API says counts",
		})
	case word.Empty() && !d.inferred(p, &c.Pristine).Empty():
		c.Trouble = append(c.Trouble, lifecycle.Problem{
			Key: "authority", Value: d.machine.Format(asked), Warning: true,
			Reason: "the kubelet asks for these CPUs as if it had given them to the container alone, and its PodResources API says that it gave it none",
			Then:   "what the API says counts: it owns none",
		})
	}
}

// takenFrom returns who else owns some of CPUs that the kubelet gave to a
// container, nil for nobody. Who had them by the kubelet's word and does not run
// any more has lost them by this one.
func (d *draft) takenFrom(key placement.Key, cpus topology.Set) *placement.Taken {
	for {
		var taken *placement.Taken
		if !errors.As(d.ledger.Check(key, cpus), &taken) {
			return nil
		}
		if taken.Owner.From != kubeletGave || d.runs(taken.Owner.Key) {
			return taken
		}
		d.dropKey(taken.Owner.Key)
	}
}

// boundMems lists the memory nodes that the kubelet's memory manager bound a
// container to, none where it did not or has not the say.
func (d *draft) boundMems(p *Pod, c *Container) []int {
	if !d.policy.KubeletOwns {
		return nil
	}
	if bound := p.Granted.StaticOf(c.Name).Mems; len(bound) > 0 {
		return bound
	}
	asked, err := topology.ParseList(c.Pristine.CPU.Mems)
	if err != nil {
		return nil // the runtime refuses it, too
	}
	return asked
}

// runs reports whether a container lives.
func (d *draft) runs(key placement.Key) bool {
	return slices.ContainsFunc(d.everyone(), func(c *Container) bool { return c.Key == key && c.Alive() })
}

// kubelets returns which of these CPUs the kubelet gave to containers of other
// pods, and a pod that has some. What somebody owns already is the ledger's.
func (d *draft) kubelets(p *Pod, cpus topology.Set) (both topology.Set, owner string) {
	note := func(c *Container) {
		if c == nil || c.Pristine.CPU.CPUs == "" || !c.Alive() || c.Key.PodUID == p.Pod.UID || c.Seat.Pool == placement.Own {
			return
		}
		other := d.pod(c.PodID)
		has := d.pinned(other, c.Name, &c.Pristine).Minus(d.ledger.Exclusive()).And(cpus)
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

// regive has containers own what the kubelet gave them and somebody else had: an
// owner's end may be told after the word that gives its CPUs to another.
func (d *draft) regive(p *Plan) {
	if !d.policy.KubeletOwns || !d.policy.Place || !d.freed() {
		return
	}
	pod, ctr := p.Pod, p.Container
	for _, id := range slices.Concat(d.base.Containers(), d.order) {
		c := d.container(id)
		if c == nil || !c.Alive() || c.Seat.Pool == placement.Own || slices.Contains(p.Changed, id) {
			continue
		}
		if p.Pod = d.pod(c.PodID); p.Pod == nil || p.Pod.Stopped {
			continue
		}
		cpus := d.pinned(p.Pod, c.Name, &c.Pristine)
		if cpus.Empty() || d.takenFrom(c.Key, cpus) != nil {
			continue
		}
		n := *c
		d.settle(p, &n, nil)
		p.Reseated = append(p.Reseated, id)
	}
	p.Pod, p.Container = pod, ctr
}

// freed reports whether somebody owns less than before by this event, or has
// ended who owns by the kubelet's word: others may have what is its then.
func (d *draft) freed() bool {
	return d.moved || slices.ContainsFunc(d.order, func(id string) bool {
		was, now := d.base.containers[id], d.containers[id]
		return was != nil && was.Alive() && was.Seat.Pool == placement.Own && (now == nil || !now.Alive())
	})
}

// pinsMoved reports whether the kubelet has given CPUs by this event or has them
// back, as far as nobody owns them by the ledger.
func (d *draft) pinsMoved() bool {
	pins := func(pod *Pod, c *Container) topology.Set {
		if c == nil || !c.Alive() || c.Seat.Pool == placement.Own {
			return topology.Set{}
		}
		return d.pinned(pod, c.Name, &c.Pristine)
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
