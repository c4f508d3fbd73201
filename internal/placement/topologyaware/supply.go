package topologyaware

import (
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

const milliOfCPU = 1000

// supply has the free CPUs and CPU time of each part of the node, by the part's index in the tree.
type supply []partSupply

// partSupply has the free CPUs and CPU time of one part of the node.
type partSupply struct {
	// sharable are the CPUs that have no owner. milli is the sum of the requests, in milli-CPUs, of the
	// containers that share CPUs of this part or of a smaller part in it. members is their number.
	sharable topology.Set
	milli    int64
	members  int
	// ownable is how many CPUs of the part a new owner can get. The part, and each part above or below it,
	// keeps enough CPUs for the containers that share its CPUs.
	ownable int
	// leftMilli is the CPU time, in milli-CPUs, that no container has requested. It is the minimum over this
	// part and all parts that contain it.
	leftMilli int64
}

// supply computes the supply of all parts under a layout, without ownable.
func (p *Policy) supply(l *placement.Layout) supply {
	s := make(supply, len(p.tree))
	for i := range p.tree {
		o, w := &s[i], placement.PoolID{Name: p.tree[i].name}
		o.sharable = l.Tree[w]
		need, _ := l.Demand.Needs.OfPool(w)
		o.milli, o.members = o.milli+need.MilliCPUs, o.members+need.Members
		if parent := p.tree[i].parent; parent >= 0 {
			s[parent].milli += o.milli
			s[parent].members += o.members
		}
	}
	for i := len(s) - 1; i >= 0; i-- {
		o := &s[i]
		o.leftMilli = int64(o.sharable.Len())*milliOfCPU - o.milli
		if parent := p.tree[i].parent; parent >= 0 {
			o.leftMilli = min(o.leftMilli, s[parent].leftMilli)
		}
	}
	return s
}

// countOwnable sets ownable of each part. Only CPUs in free can be owned.
func (p *Policy) countOwnable(s supply, free topology.Set) {
	for i := range s {
		s[i].ownable = min(s[i].spareCount(), p.ownCPUs(i).And(free).Len()+p.sumOfChildren(i, func(child int) int { return s[child].ownable }))
	}
	for i := len(s) - 1; i >= 0; i-- {
		if parent := p.tree[i].parent; parent >= 0 {
			s[i].ownable = min(s[i].ownable, s[parent].ownable)
		}
	}
}

// spareCount returns how many CPUs a part can lose to owners. A part without containers may lose all its
// CPUs. A part with containers keeps enough for their requests, and at least one.
func (o *partSupply) spareCount() int {
	if o.members == 0 {
		return o.sharable.Len()
	}
	return max(o.sharable.Len()-max(int((o.milli+milliOfCPU-1)/milliOfCPU), 1), 0)
}

// ownCPUs returns the CPUs of part i that are in none of its children.
func (p *Policy) ownCPUs(i int) topology.Set {
	cpus := p.tree[i].cpus
	for _, child := range p.tree[i].children {
		cpus = cpus.Minus(p.tree[child].cpus)
	}
	return cpus
}

// sumOfChildren sums a number over the children of part i.
func (p *Policy) sumOfChildren(i int, of func(child int) int) (n int) {
	for _, child := range p.tree[i].children {
		n += of(child)
	}
	return n
}

// spareCPUs returns CPUs of part i that a container can own. It takes no more of each child than the child
// can spare.
func (p *Policy) spareCPUs(s supply, i int, free topology.Set) topology.Set {
	cpus := p.ownCPUs(i).And(free)
	for _, child := range p.tree[i].children {
		cpus = cpus.Union(p.spareCPUs(s, child, free))
	}
	if most := s[i].spareCount(); most < cpus.Len() {
		return p.pick(most, cpus, topology.Set{})
	}
	return cpus
}
