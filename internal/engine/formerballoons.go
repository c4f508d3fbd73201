package engine

import (
	"cmp"
	"slices"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// formerBalloon is a balloon (a set of CPUs for some containers) that another agent made before Trimtab managed the
// node. It is reconstructed from the balloon's containers.
type formerBalloon struct {
	firstName string // the name that Trimtab gives to the first balloon of this balloon's type
	cpus      topology.Set
	subject   placement.Subject // one of the balloon's containers
	members   []*lifecycle.Container
}

// formerBalloons reconstructs the balloons of another agent from the CPUs of its containers, because the other agent's
// files do not name balloons. The keys of the result are the names that Trimtab gives to the balloons. The containers
// of one balloon have the same CPUs, or a part of them if a container uses one thread of each core. Different balloons
// have different CPUs. So if containers belong to the same type of balloon and have the same CPUs, they were in one
// balloon. If CPUs overlap in another way, for example because balloons share idle CPUs, the containers are decided
// like new ones. The balloons of a type are numbered by the age of the oldest container in each balloon.
func (d *draft) formerBalloons(all []*lifecycle.Container) map[string]formerBalloon {
	if len(d.facts.FormerAgent) == 0 {
		return nil
	}
	var found []formerBalloon
	for _, c := range adoptionOrder(all, func(*lifecycle.Container) bool { return false }) {
		cpus, shared := d.sharedUnderFormerAgent(c)
		p := d.n.pod(c.PodID)
		if !shared || p == nil {
			continue
		}
		asked := pristineResources(&c.Resources)
		who := placement.Subject{Intent: p.Intent, Pod: p.Pod, Name: c.Name, Requested: &asked}
		first := placement.BalloonOf(d.n.policy.Placement, who, 0)
		if first == "" {
			continue
		}
		i := slices.IndexFunc(found, func(b formerBalloon) bool {
			return b.firstName == first && (b.cpus.Contains(cpus) || cpus.Contains(b.cpus))
		})
		if i < 0 {
			i, found = len(found), append(found, formerBalloon{firstName: first, subject: who})
		}
		found[i].cpus, found[i].members = found[i].cpus.Union(cpus), append(found[i].members, c)
	}
	out, numbers := map[string]formerBalloon{}, map[string]int{}
	for i, b := range found {
		overlaps := func(o formerBalloon) bool { return !o.cpus.And(b.cpus).Empty() }
		if slices.ContainsFunc(found[:i], overlaps) || slices.ContainsFunc(found[i+1:], overlaps) {
			continue
		}
		if name := placement.BalloonOf(d.n.policy.Placement, b.subject, numbers[b.firstName]); name != "" {
			numbers[b.firstName]++
			out[name] = b
		}
	}
	return out
}

// sharedUnderFormerAgent returns the CPUs that a container shared with other containers under the former agent. ok is
// false if there are no such CPUs, or if the container does not run on these CPUs now.
func (d *draft) sharedUnderFormerAgent(c *lifecycle.Container) (cpus topology.Set, ok bool) {
	f, formerly := d.facts.FormerAgent[c.ID]
	if _, recorded := d.facts.Records[c.ID]; !formerly || recorded || f.Exclusive || f.CPUs == "" || c.Undescribed != "" {
		return cpus, false
	}
	cpus = d.n.machine.OnlineOf(f.CPUs)
	list, read := d.facts.KernelCPUs[c.ID]
	return cpus, !read || cmp.Or(d.n.machine.OnlineOf(list), d.n.machine.Online()) == cpus
}
