package topologyaware

import (
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// milliOfCPU is the number of milli-CPUs in one CPU.
const milliOfCPU = 1000

// supply has the free CPUs and the free CPU time of each part of the node. The index is the part's index in the tree.
type supply []partSupply

// partSupply has the free CPUs and the free CPU time of one part of the node.
type partSupply struct {
	// sharable are the CPUs that containers of the part share. The field members is the number of containers that share
	// CPUs of this part or of a smaller part in it. The field requestedMilli is the sum of the CPU requests of these
	// containers, in milli-CPUs.
	sharable       topology.Set
	requestedMilli int64
	members        int
	// ownableCount is how many CPUs of the part a new owner can get. Then enough CPUs are still left for the containers
	// that share CPUs in this part, in each smaller part in it, and in each larger part that contains it.
	ownableCount int
	// leftMilli is the CPU time in milli-CPUs that a new container can still request. It is limited by the CPU time
	// that is left in this part and in each part that contains this part.
	leftMilli int64
}

// supply computes the supply of all parts for a layout. countOwnable sets the field ownableCount later.
func (p *Policy) supply(l *placement.Layout) supply {
	s := make(supply, len(p.tree))
	for i := range p.tree {
		o, w := &s[i], placement.PoolID{Name: p.tree[i].name}
		o.sharable = l.CPUsByPart[w]
		need, _ := l.Demand.Needs.OfPool(w)
		o.requestedMilli, o.members = o.requestedMilli+need.MilliCPUs, o.members+need.Members
		if parent := p.tree[i].parent; parent >= 0 {
			s[parent].requestedMilli += o.requestedMilli
			s[parent].members += o.members
		}
	}
	for i := len(s) - 1; i >= 0; i-- {
		o := &s[i]
		o.leftMilli = int64(o.sharable.Len())*milliOfCPU - o.requestedMilli
		if parent := p.tree[i].parent; parent >= 0 {
			o.leftMilli = min(o.leftMilli, s[parent].leftMilli)
		}
	}
	return s
}

// countOwnable sets the field ownableCount of each part. A container can get only CPUs in the set free.
func (p *Policy) countOwnable(s supply, free topology.Set) {
	for i := range s {
		s[i].ownableCount = min(s[i].spareCount(), p.ownCPUs(i).And(free).Len()+p.sumOfChildren(i, func(child int) int { return s[child].ownableCount }))
	}
	for i := len(s) - 1; i >= 0; i-- {
		if parent := p.tree[i].parent; parent >= 0 {
			s[i].ownableCount = min(s[i].ownableCount, s[parent].ownableCount)
		}
	}
}

// spareCount returns how many of the sharable CPUs new owners can get. If no containers share CPUs of the part, these
// are all sharable CPUs. Otherwise enough CPUs for the containers' requests are left, and at least one CPU.
func (o *partSupply) spareCount() int {
	if o.members == 0 {
		return o.sharable.Len()
	}
	return max(o.sharable.Len()-max(int((o.requestedMilli+milliOfCPU-1)/milliOfCPU), 1), 0)
}

// ownCPUs returns the CPUs of part i that no smaller part in it has.
func (p *Policy) ownCPUs(i int) topology.Set {
	cpus := p.tree[i].cpus
	for _, child := range p.tree[i].children {
		cpus = cpus.Minus(p.tree[child].cpus)
	}
	return cpus
}

// sumOfChildren returns the sum of number(child) over the children of part i.
func (p *Policy) sumOfChildren(i int, number func(child int) int) (n int) {
	for _, child := range p.tree[i].children {
		n += number(child)
	}
	return n
}

// spareCPUs returns the CPUs of part i that a new owner can get. It takes at most spareCount CPUs from the part and
// from each smaller part in it.
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
