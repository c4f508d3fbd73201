package choose

import (
	"github.com/trimtab/trimtab/internal/topology"
)

// picker chooses the CPUs for one request.
type picker struct {
	tree    *Tree
	request Request
	reasons []Reason
	chosen  topology.Set
	// near are the CPUs of a preference with Partly that could not be met: too few of these CPUs are free, so as many
	// of them as possible should be chosen. nearName is the name of this preference.
	near     topology.Set
	nearName string
	// leaveFree says how many CPUs must stay free on NUMA nodes.
	leaveFree []leaveLimit
	// memory has how far the requested memory would be from each NUMA node; nil if the memory fits on every node with
	// CPUs.
	memory *memoryDistances

	*scratch
	// free are the CPUs to choose from. Each of the following tallies has a number of CPUs for each group of the tree.
	free           topology.Set
	freeCount      tally // the free CPUs, without those that must stay free
	usedWithCount  tally // the CPUs in Request.UsedWith; nil if UsedWith is empty
	nearCount      tally // the free CPUs in near; nil if there are none
	sharedCount    tally // the free CPUs in Request.Shared; nil if there are none
	wholeCoreCount tally // the free CPUs in whole cores; nil if there are none, or if the request does not need them
	// usedWithNodes are the indices of the NUMA nodes with CPUs in Request.UsedWith.
	usedWithNodes []int
}

// leaveLimit says that n CPUs of the NUMA node with index node must stay free.
type leaveLimit struct{ node, n int }

// portion is the number of CPUs that are taken of a group.
type portion struct{ group, n int }

// reset prepares the picker to choose from the given CPUs.
func (p *picker) reset(free topology.Set) {
	p.free = free
	p.costs.reset(len(p.tree.groups) + p.tree.shapes)
	p.freeCount = p.count(freeTally, &free)
	if len(p.leaveFree) > 0 {
		p.subtractReserve()
	}
	near, shared := p.near.And(free), p.request.Shared.And(free)
	p.nearCount, p.sharedCount = p.count(nearTally, &near), p.count(sharedTally, &shared)
	if p.tree.hybrid && (p.request.Cores == AnyThread || p.request.Cores == PreferWhole) {
		whole := p.wholeCoreCPUs(free)
		p.wholeCoreCount = p.count(wholeCoreTally, &whole)
	}
	if p.request.UsedWith.Empty() || p.usedWithCount != nil {
		return
	}
	p.usedWithCount = p.count(usedWithTally, &p.request.UsedWith)
	for i := range p.tree.machine.Nodes {
		if !p.tree.machine.Nodes[i].CPUs.And(p.request.UsedWith).Empty() {
			p.usedWithNodes = append(p.usedWithNodes, i)
		}
	}
}

// count returns how many CPUs of a set each group has. It stores the numbers in the tally p.tallies[index]. If the set
// is empty, it returns nil, except for the tally of the free CPUs (freeTally).
func (p *picker) count(index int, s *topology.Set) tally {
	if index != freeTally && s.Empty() {
		return nil
	}
	p.tallies[index] = p.tree.count(p.tallies[index], s)
	return p.tallies[index]
}

// subtractReserve subtracts the CPUs that must stay free from the numbers of free CPUs of NUMA nodes. It does not
// choose which CPUs of a node stay free.
func (p *picker) subtractReserve() {
	groups := p.tree.groups
	for i := len(groups) - 1; i >= 0; i-- {
		g := &groups[i]
		switch {
		case g.node < 0 && g.parts != nil:
			p.freeCount[i] = 0
			for _, part := range g.parts {
				p.freeCount[i] += p.freeCount[part]
			}
		case g.outer <= topology.NodeLevel && g.inner >= topology.NodeLevel:
			p.freeCount[i] = int32(p.limitOnNode(g.node, int(p.freeCount[i])))
		}
	}
}

// usedWithIn returns the number of a group's CPUs in Request.UsedWith.
func (p *picker) usedWithIn(group int) int {
	if p.usedWithCount == nil {
		return 0
	}
	return int(p.usedWithCount[group])
}

// take adds n CPUs of a group to the chosen CPUs, and the reasons to p.reasons. It chooses among the parts of the
// group, then among the parts of the chosen part, and so on down to CPUs. It returns false if the n CPUs cannot be
// taken.
func (p *picker) take(at, n int) bool {
	g := &p.tree.groups[at]
	if g.hasCores {
		_, ok := p.divideOverCores(at, n)
		for _, s := range p.portions {
			p.takeThreads(s)
		}
		return ok
	}
	best, by, of, f, ok := p.chooseParts(g, n)
	defer p.releaseList(f.portions)
	if of > 0 {
		r := Reason{Step: GroupChosen, Rule: p.ruleName(by, of), Level: p.tree.groups[best.group].outer, Kinds: p.tree.isDividedByKind(g), Candidates: of}
		p.addGroupEliminations(&r, g.parts, n, &best)
		p.reasons = append(p.reasons, r)
		return p.take(best.group, n)
	}
	p.reasons = append(p.reasons, Reason{Step: GroupsFilled, Rule: f.betterBy, Level: p.tree.groups[g.parts[0]].outer, Kinds: p.tree.isDividedByKind(g), Candidates: len(g.parts), Remaining: len(f.portions)})
	if fewer, level, of := p.improvePackages(g, n, f.portions, f.cost); ok && of > 0 {
		f.portions = fewer
		p.reasons = append(p.reasons, Reason{Step: GroupsFilled, Level: level, Candidates: of, Remaining: len(fewer)})
	}
	for _, s := range f.portions {
		ok = ok && p.take(s.group, s.n)
	}
	return ok
}

// addGroupEliminations adds to r, for each part with n free CPUs that was not chosen, the criterion by which best is
// better than this part.
func (p *picker) addGroupEliminations(r *Reason, parts []int, n int, best *candidate) {
	for _, part := range parts {
		if r.Candidates < 2 || part == best.group || int(p.freeCount[part]) < n {
			continue
		}
		c := candidate{group: part, distance: p.distanceOf(part, nil), usedWith: p.usedWithIn(part), free: int(p.freeCount[part])}
		var ok bool
		if c.cost, ok = p.costOf(part, n); !ok {
			continue
		}
		c.nodes = p.nodesIn(part, n)
		c.rank = p.rank(&c)
		_, by := best.rank.isBetter(&c.rank)
		r.addElimination(int(by), p.ruleName(by, r.Candidates), 1, p.tree.id(part))
	}
}

// chooseParts decides from which parts of a group n CPUs are taken. If the result candidates is above 0, all n CPUs are
// taken from the part best, and candidates is the number of parts with enough CPUs. The result by is the criterion by
// which best is better than the next best part. If candidates is 0, the CPUs are taken from the several parts in f.
// There are three such cases:
//
//   - No part has enough CPUs.
//   - The best part has no CPU in Request.UsedWith. Parts with CPUs in UsedWith, and at most one other part, have n
//     CPUs together. With these parts, the choice uses and splits no more cores than with the best part.
//   - The processor is hybrid, and several parts of a NUMA node split fewer cores than the best part.
func (p *picker) chooseParts(g *group, n int) (best candidate, by criterion, candidates int, f division, ok bool) {
	best, by, candidates = p.bestGroup(g.parts, n, nil)
	if candidates > 0 && (p.usedWithCount == nil || best.usedWith > 0) {
		if f, ok = p.preferWholeCores(g, n, &best); ok {
			return best, by, 0, f, true
		}
		return best, by, candidates, f, true
	}
	f, ok = p.fill(g.parts, n)
	if candidates > 0 && (!ok || f.newGroups > 1 || f.usedWith == 0 ||
		f.cost.spans[topology.CoreLevel] > best.cost.spans[topology.CoreLevel] || f.cost.splitCores > best.cost.splitCores) {
		return best, by, candidates, f, true
	}
	if candidates > 0 {
		f.betterBy = criteria[mostUsedWith]
	}
	return best, by, 0, f, ok
}

// preferWholeCores divides n over several parts of a NUMA node of a hybrid processor. The result ok is false if the
// division does not split fewer cores than the best single part.
func (p *picker) preferWholeCores(g *group, n int, best *candidate) (f division, ok bool) {
	if p.wholeCoreCount == nil || best.cost.splitCores == 0 || p.tree.groups[g.parts[0]].outer <= topology.NodeLevel || p.tree.isDividedByKind(g) {
		return f, false
	}
	if f, ok = p.fillWhole(g.parts, n); !ok || f.cost.splitCores >= best.cost.splitCores {
		p.releaseList(f.portions)
		return division{}, false
	}
	f.betterBy = criteria[fewestSplitCores]
	return f, true
}

// takeThreads adds the lowest free threads of a core to the chosen CPUs. It takes the CPUs in p.near first, and then
// CPUs that are not in Request.Shared.
func (p *picker) takeThreads(s portion) {
	passCount := p.passes()
	for pass := range passCount {
		for _, cpu := range p.tree.groups[s.group].threads {
			if s.n > 0 && p.free.Has(cpu) && (passCount == 1 || pass == p.passOfCPU(cpu)) {
				p.chosen.Add(cpu)
				s.n--
			}
		}
	}
}

// passOfCPU returns the pass in which takeThreads takes a CPU. takeThreads makes several passes over the threads of a
// core: the first pass takes the most preferred threads.
func (p *picker) passOfCPU(cpu int) int {
	sharing := 0
	if p.sharedCount != nil && p.request.Shared.Has(cpu) {
		sharing = 1
	}
	return p.passNumber(!p.near.Has(cpu), sharing)
}

// costOf returns the cost of taking n CPUs of a group, without taking them. ok is false if they cannot be
// taken.
func (p *picker) costOf(at, n int) (c cost, ok bool) {
	g := &p.tree.groups[at]
	key := at
	if p.isUniform(at) { // groups of one shape cost the same
		key = len(p.tree.groups) + g.shape
	}
	if m := p.costs.find(key, n); m != nil {
		return m.cost, m.ok
	}
	var nodes uint64
	if g.hasCores {
		c, ok = p.divideOverCores(at, n)
	} else {
		best, _, of, f, found := p.chooseParts(g, n)
		if c, nodes, ok = f.cost, f.nodes, found; of > 0 {
			c, nodes = best.cost, best.nodes
		}
		p.releaseList(f.portions)
	}
	for l := g.outer; l <= g.inner && g.threads == nil; l++ { // addCore has already counted the levels of a core
		c.spans[l]++
	}
	if g.isCoreKind && g.threads == nil {
		c.coreKinds++
	}
	p.costs.add(key, memoEntry{n: int32(n), cost: c, nodes: nodes, ok: ok})
	return c, ok
}

// isUniform reports whether all CPUs of a group are free and equally good. If they are, the cost of taking n of them is
// the same for all groups that are divided in the same way (group.shape).
func (p *picker) isUniform(at int) bool {
	return int(p.freeCount[at]) == p.tree.groups[at].size && p.usedWithIn(at) == 0 &&
		(p.memory == nil || p.tree.groups[at].node >= 0) &&
		(p.nearCount == nil || p.nearCount[at] == 0) && (p.sharedCount == nil || p.sharedCount[at] == 0)
}

// bestGroup returns the best part with at least n free CPUs, and the criterion by which this part is better than the
// next best part. It skips the parts in used, from which CPUs are already taken, and prefers parts near them. The
// result candidates is the number of parts from which the n CPUs can be taken.
func (p *picker) bestGroup(parts []int, n int, used []portion) (best candidate, by criterion, candidates int) {
	var next rank
	for _, part := range parts {
		if int(p.freeCount[part]) < n || isUsed(used, part) {
			continue
		}
		c := candidate{group: part, distance: p.distanceOf(part, used), usedWith: p.usedWithIn(part), free: int(p.freeCount[part])}
		var ok bool
		if c.cost, ok = p.costOf(part, n); !ok {
			continue
		}
		if p.memory != nil {
			c.nodes = p.nodesOf(used) | p.nodesIn(part, n)
		}
		c.rank = p.rank(&c)
		candidates++
		switch {
		case candidates == 1:
			best = c
		case c.rank.beats(&best.rank):
			best, next = c, best.rank
		case candidates == 2 || c.rank.beats(&next):
			next = c.rank
		}
	}
	if candidates > 1 {
		_, by = best.rank.isBetter(&next)
	}
	return best, by, candidates
}

// distanceOf returns the distance from the NUMA node of a group to other NUMA nodes, as a sum: to the nodes of the
// groups in others, and to the nodes with CPUs in Request.UsedWith.
func (p *picker) distanceOf(part int, others []portion) int {
	sum, at := 0, p.tree.groups[part].node
	if at >= 0 {
		for _, node := range p.usedWithNodes {
			sum += p.tree.machine.Distance(node, at)
		}
	}
	for _, o := range others {
		if to := p.tree.groups[o.group].node; at >= 0 && to >= 0 {
			sum += p.tree.machine.Distance(to, at)
		}
	}
	return sum
}
