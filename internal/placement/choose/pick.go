package choose

import (
	"github.com/trimtab/trimtab/internal/topology"
)

// picker answers one request.
type picker struct {
	tree *Tree
	want Want
	why  []Reason
	out  topology.Set
	// near are CPUs that are preferred as far as possible.
	near     topology.Set
	nearName string
	// leaveFree is the number of CPUs that must stay free on NUMA nodes.
	leaveFree []leaveLimit
	// memory has the distances of memory; nil if they are the same everywhere.
	memory *weighed

	*scratch
	// Of the set that is chosen from now, by group:
	free   topology.Set
	have   tally // the number of free CPUs, without those that must stay free
	beside tally // the number of CPUs in UsedWith; nil if that is empty
	nearby tally // the number of free CPUs that are near; nil if none is near
	shared tally // the number of free CPUs that are Shared; nil if that is empty
	wholes tally // the number of free CPUs in whole cores; nil if that does not matter
	// besideNodes are the NUMA nodes of UsedWith, by index.
	besideNodes []int
}

// leaveLimit is how many CPUs of a NUMA node, by its index, must stay free.
type leaveLimit struct{ node, n int }

// share is how many CPUs a group gives.
type share struct{ group, n int }

// from starts a choice from other CPUs.
func (p *picker) from(free topology.Set) {
	p.free = free
	p.known.reset(len(p.tree.groups) + p.tree.shapes)
	p.have = p.count(haveTally, &free)
	if len(p.leaveFree) > 0 {
		p.hold()
	}
	near, shared := p.near.And(free), p.want.Shared.And(free)
	p.nearby, p.shared = p.count(nearbyTally, &near), p.count(sharedTally, &shared)
	if p.tree.hybrid && (p.want.Cores == AnyThread || p.want.Cores == PreferWhole) {
		whole := p.ofWhole(free)
		p.wholes = p.count(wholeTally, &whole)
	}
	if p.want.UsedWith.Empty() || p.beside != nil {
		return
	}
	p.beside = p.count(besideTally, &p.want.UsedWith)
	for i := range p.tree.machine.Nodes {
		if !p.tree.machine.Nodes[i].CPUs.And(p.want.UsedWith).Empty() {
			p.besideNodes = append(p.besideNodes, i)
		}
	}
}

// count returns how many CPUs of a set each group has. It returns nil for an empty set, unless
// it is the set that is chosen from.
func (p *picker) count(what int, s *topology.Set) tally {
	if what != haveTally && s.Empty() {
		return nil
	}
	p.tallies[what] = p.tree.count(p.tallies[what], s)
	return p.tallies[what]
}

// hold subtracts the CPUs that must stay free from the free CPUs of NUMA nodes. Any CPUs of the
// node may be the ones that stay free.
func (p *picker) hold() {
	groups := p.tree.groups
	for i := len(groups) - 1; i >= 0; i-- {
		g := &groups[i]
		switch {
		case g.node < 0 && g.parts != nil:
			p.have[i] = 0
			for _, part := range g.parts {
				p.have[i] += p.have[part]
			}
		case g.outer <= topology.NodeLevel && g.inner >= topology.NodeLevel:
			p.have[i] = int32(p.reduced(g.node, int(p.have[i])))
		}
	}
}

func (p *picker) besides(group int) int {
	if p.beside == nil {
		return 0
	}
	return int(p.beside[group])
}

// take adds n CPUs of a group to the answer, from the outside in, and notes the reasons. It
// reports whether that was possible.
func (p *picker) take(at, n int) bool {
	g := &p.tree.groups[at]
	if g.ofCores {
		_, ok := p.threads(at, n)
		for _, s := range p.some {
			p.takeThreads(s)
		}
		return ok
	}
	best, by, of, f, ok := p.split(g, n)
	defer p.release(f.shares)
	if of > 0 {
		r := Reason{Step: Entered, Rule: p.rule(by, of), Level: p.tree.groups[best.group].outer, Kinds: p.tree.byKind(g), Of: of}
		p.runnersUp(&r, g.parts, n, &best)
		p.why = append(p.why, r)
		return p.take(best.group, n)
	}
	p.why = append(p.why, Reason{Step: Filled, Rule: f.instead, Level: p.tree.groups[g.parts[0]].outer, Kinds: p.tree.byKind(g), Of: len(g.parts), Left: len(f.shares)})
	if fewer, level, of := p.overPackages(g, n, f.shares, f.cost); ok && of > 0 {
		f.shares = fewer
		p.why = append(p.why, Reason{Step: Filled, Level: level, Of: of, Left: len(fewer)})
	}
	for _, s := range f.shares {
		ok = ok && p.take(s.group, s.n)
	}
	return ok
}

// runnersUp notes for each other part with enough CPUs the criterion by which it lost.
func (p *picker) runnersUp(r *Reason, parts []int, n int, best *candidate) {
	for _, part := range parts {
		if r.Of < 2 || part == best.group || int(p.have[part]) < n {
			continue
		}
		c := candidate{group: part, far: p.distanceOf(part, nil), beside: p.besides(part), left: int(p.have[part])}
		var ok bool
		if c.cost, ok = p.measure(part, n); !ok {
			continue
		}
		c.nodes = p.nodesIn(part, n)
		c.rank = p.rank(&c)
		_, by := best.rank.before(&c.rank)
		r.against(int(by), p.rule(by, r.Of), 1, p.tree.id(part))
	}
}

// split decides which parts of a group give n CPUs. of is the number of parts that have enough,
// and best is the best of them. If of is 0, several parts give a share, for one of three
// reasons: none has enough; some have UsedWith CPUs, and no new group and no more cores are
// needed; or, in a NUMA node of a hybrid processor, fewer cores are split.
func (p *picker) split(g *group, n int) (best candidate, by criterion, of int, f filling, ok bool) {
	best, by, of = p.best(g.parts, n, nil)
	if of > 0 && (p.beside == nil || best.beside > 0) {
		if f, ok = p.wholer(g, n, &best); ok {
			return best, by, 0, f, true
		}
		return best, by, of, f, true
	}
	f, ok = p.fill(g.parts, n)
	if of > 0 && (!ok || f.fresh > 1 || f.beside == 0 ||
		f.cost.spans[topology.CoreLevel] > best.cost.spans[topology.CoreLevel] || f.cost.split > best.cost.split) {
		return best, by, of, f, true
	}
	if of > 0 {
		f.instead = criteria[mostBeside]
	}
	return best, by, 0, f, ok
}

// wholer fills several parts of a NUMA node instead of the best single part, if that splits
// fewer cores.
func (p *picker) wholer(g *group, n int, best *candidate) (f filling, ok bool) {
	if p.wholes == nil || best.cost.split == 0 || p.tree.groups[g.parts[0]].outer <= topology.NodeLevel || p.tree.byKind(g) {
		return f, false
	}
	if f, ok = p.fillWhole(g.parts, n); !ok || f.cost.split >= best.cost.split {
		p.release(f.shares)
		return filling{}, false
	}
	f.instead = criteria[fewestSplit]
	return f, true
}

// takeThreads adds the lowest free threads of a core, near and unshared threads first.
func (p *picker) takeThreads(s share) {
	turns := p.turns()
	for turn := range turns {
		for _, cpu := range p.tree.groups[s.group].threads {
			if s.n > 0 && p.free.Has(cpu) && (turns == 1 || turn == p.turnOfCPU(cpu)) {
				p.out.Add(cpu)
				s.n--
			}
		}
	}
}

func (p *picker) turnOfCPU(cpu int) int {
	sharing := 0
	if p.shared != nil && p.want.Shared.Has(cpu) {
		sharing = 1
	}
	return p.turnOf(!p.near.Has(cpu), sharing)
}

// measure returns the cost of take, without noting reasons.
func (p *picker) measure(at, n int) (c cost, ok bool) {
	g := &p.tree.groups[at]
	key := at
	if p.alike(at) { // groups of one shape cost the same
		key = len(p.tree.groups) + g.shape
	}
	if m := p.known.find(key, n); m != nil {
		return m.cost, m.ok
	}
	var nodes uint64
	if g.ofCores {
		c, ok = p.threads(at, n)
	} else {
		best, _, of, f, found := p.split(g, n)
		if c, nodes, ok = f.cost, f.nodes, found; of > 0 {
			c, nodes = best.cost, best.nodes
		}
		p.release(f.shares)
	}
	for l := g.outer; l <= g.inner && g.threads == nil; l++ { // costs of cores are counted each time, not cached
		c.spans[l]++
	}
	if g.ofKind && g.threads == nil {
		c.kinds++
	}
	p.known.add(key, measured{n: int32(n), cost: c, nodes: nodes, ok: ok})
	return c, ok
}

// alike reports whether a group is entirely free, and all its CPUs are equally good.
func (p *picker) alike(at int) bool {
	return int(p.have[at]) == p.tree.groups[at].size && p.besides(at) == 0 &&
		(p.memory == nil || p.tree.groups[at].node >= 0) &&
		(p.nearby == nil || p.nearby[at] == 0) && (p.shared == nil || p.shared[at] == 0)
}

// best returns the best group with n CPUs, the criterion by which it beat the next best, and
// their number. It leaves out groups that are used already, and prefers groups near them.
func (p *picker) best(parts []int, n int, used []share) (best candidate, by criterion, of int) {
	var next rank
	for _, part := range parts {
		if int(p.have[part]) < n || isUsed(used, part) {
			continue
		}
		c := candidate{group: part, far: p.distanceOf(part, used), beside: p.besides(part), left: int(p.have[part])}
		var ok bool
		if c.cost, ok = p.measure(part, n); !ok {
			continue
		}
		if p.memory != nil {
			c.nodes = p.nodesOf(used) | p.nodesIn(part, n)
		}
		c.rank = p.rank(&c)
		of++
		switch {
		case of == 1:
			best = c
		case c.rank.better(&best.rank):
			best, next = c, best.rank
		case of == 2 || c.rank.better(&next):
			next = c.rank
		}
	}
	if of > 1 {
		_, by = best.rank.before(&next)
	}
	return best, by, of
}

// distanceOf returns the distance of a group from others and from UsedWith, as the sum over their NUMA
// nodes.
func (p *picker) distanceOf(part int, others []share) int {
	sum, at := 0, p.tree.groups[part].node
	if at >= 0 {
		for _, node := range p.besideNodes {
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
