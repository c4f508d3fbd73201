package topologyaware

import (
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

const milliOfCPU = 1000

// supply is what each part of the node has, by its index in the tree.
type supply []offer

// offer is what one part has.
type offer struct {
	// sharable are the CPUs that nobody owns. milli and members are the requests and the
	// number of the containers that share CPUs of this part or of one in it.
	sharable topology.Set
	milli    int64
	members  int
	// ownable is how many CPUs of the part a container can own: each part around them and in
	// it keeps enough for the containers that share its CPUs.
	ownable int
	// left is the CPU time that no container has requested, here and in each part around it,
	// in milli-CPUs.
	left int64
}

// supply returns what the parts have under a layout for containers that share CPUs.
func (p *Policy) supply(l *placement.Layout) supply {
	s := make(supply, len(p.tree))
	for i := range p.tree {
		o, w := &s[i], placement.Which{Name: p.tree[i].name}
		o.sharable = l.Tree[w]
		need, _ := l.Demand.Needs.Of(w)
		o.milli, o.members = o.milli+need.Milli, o.members+need.Members
		if parent := p.tree[i].parent; parent >= 0 {
			s[parent].milli += o.milli
			s[parent].members += o.members
		}
	}
	for i := len(s) - 1; i >= 0; i-- {
		o := &s[i]
		o.left = int64(o.sharable.Len())*milliOfCPU - o.milli
		if parent := p.tree[i].parent; parent >= 0 {
			o.left = min(o.left, s[parent].left)
		}
	}
	return s
}

// countOwnable counts how many CPUs of each part a container can own, if only CPUs of free can
// be owned.
func (p *Policy) countOwnable(s supply, free topology.Set) {
	for i := range s {
		s[i].ownable = min(s[i].unneeded(), p.outside(i).And(free).Len()+p.sum(i, func(child int) int { return s[child].ownable }))
	}
	for i := len(s) - 1; i >= 0; i-- {
		if parent := p.tree[i].parent; parent >= 0 {
			s[i].ownable = min(s[i].ownable, s[parent].ownable)
		}
	}
}

// unneeded is how many CPUs the containers that share the part can spare. An idle part may lose
// all its CPUs, a part in use may not.
func (o *offer) unneeded() int {
	if o.members == 0 {
		return o.sharable.Len()
	}
	return max(o.sharable.Len()-max(int((o.milli+milliOfCPU-1)/milliOfCPU), 1), 0)
}

// outside returns the CPUs of a part that are in none of its children.
func (p *Policy) outside(i int) topology.Set {
	cpus := p.tree[i].cpus
	for _, child := range p.tree[i].children {
		cpus = cpus.Minus(p.tree[child].cpus)
	}
	return cpus
}

func (p *Policy) sum(i int, of func(child int) int) (n int) {
	for _, child := range p.tree[i].children {
		n += of(child)
	}
	return n
}

// spare returns CPUs of a part that a container can own: of each child only as many as it can
// spare.
func (p *Policy) spare(s supply, i int, free topology.Set) topology.Set {
	cpus := p.outside(i).And(free)
	for _, child := range p.tree[i].children {
		cpus = cpus.Union(p.spare(s, child, free))
	}
	if most := s[i].unneeded(); most < cpus.Len() {
		return p.pick(most, cpus, topology.Set{})
	}
	return cpus
}
