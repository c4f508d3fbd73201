package choose

import (
	"github.com/trimtab/trimtab/internal/topology"
)

// picker is one question while it is answered.
type picker struct {
	tree *Tree
	want Want
	why  []Reason
	out  topology.Set
	// near are CPUs that are preferred as far as possible.
	near     topology.Set
	nearName string
	// leave is what is left of NUMA nodes.
	leave []leave
	// memory is how far it would be, nil where that is the same everywhere.
	memory *weighed

	*scratch
	// Of the set that is chosen from at the moment, by group:
	free   topology.Set
	have   tally // how many of its CPUs are free, less those that are left to others
	beside tally // how many of its CPUs are in Beside; nil where that is empty
	nearby tally // how many of those that are free are near; nil where nothing is
	shared tally // how many of those that are free are Shared; nil where that is empty
	wholes tally // how many of those that are free are in whole cores; nil where that does not matter
	// besideNodes are the NUMA nodes of Beside, by index.
	besideNodes []int
}

// leave is how many CPUs of a NUMA node, by its index, are left.
type leave struct{ node, n int }

// share is how many CPUs a group gives.
type share struct{ group, n int }

// from starts to choose from other CPUs.
func (p *picker) from(free topology.Set) {
	p.free = free
	p.known.reset(len(p.tree.groups) + p.tree.shapes)
	p.have = p.count(haveTally, &free)
	if len(p.leave) > 0 {
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

// count returns how many CPUs of a set each group has, and nil of the empty set, unless
// it is the set that is chosen from.
func (p *picker) count(what int, s *topology.Set) tally {
	if what != haveTally && s.Empty() {
		return nil
	}
	p.tallies[what] = p.tree.count(p.tallies[what], s)
	return p.tallies[what]
}

// hold takes what is left to others out of what NUMA nodes have. Inside of a node it
// does not matter which CPUs these are.
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

// take adds n CPUs of a group to the answer, walking inwards, and notes what
// decided on the way. It reports whether there was a way.
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

// runnersUp notes what decided against each other part that holds all.
func (p *picker) runnersUp(r *Reason, parts []int, n int, best *candidate) {
	for _, part := range parts {
		if r.Of < 2 || part == best.group || int(p.have[part]) < n {
			continue
		}
		c := candidate{group: part, far: p.far(part, nil), beside: p.besides(part), left: int(p.have[part])}
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

// split says which parts of a group give n CPUs: of is how many hold them all, and best
// the best of these. Where it is 0, several give a part: none holds all, or some are
// beside those they are used with, and that takes no new group and no core more; or, inside
// of a NUMA node of a hybrid processor, fewer cores are taken in part.
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

// wholer fills several parts of a NUMA node instead of the best one that holds all, where that
// takes fewer cores in part.
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

// takeThreads adds the lowest free threads of a core, those first that are near and
// that nobody else runs on.
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

// measure says what take would cost, without a word.
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
	for l := g.outer; l <= g.inner && g.threads == nil; l++ { // those of cores are counted
		c.spans[l]++
	}
	if g.ofKind && g.threads == nil {
		c.kinds++
	}
	p.known.add(key, measured{n: int32(n), cost: c, nodes: nodes, ok: ok})
	return c, ok
}

// alike reports whether a group is entirely free, and nothing of it is better or worse
// to have.
func (p *picker) alike(at int) bool {
	return int(p.have[at]) == p.tree.groups[at].size && p.besides(at) == 0 &&
		(p.memory == nil || p.tree.groups[at].node >= 0) &&
		(p.nearby == nil || p.nearby[at] == 0) && (p.shared == nil || p.shared[at] == 0)
}

// best returns the best of the groups that hold n, by what criterion it beat the
// next best, and how many there were. Groups already used are left out, and
// nearness to them counts.
func (p *picker) best(parts []int, n int, used []share) (best candidate, by criterion, of int) {
	var next rank
	for _, part := range parts {
		if int(p.have[part]) < n || isUsed(used, part) {
			continue
		}
		c := candidate{group: part, far: p.far(part, used), beside: p.besides(part), left: int(p.have[part])}
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

// far returns how far a group is from others, and from those beside, as the sum over
// their NUMA nodes.
func (p *picker) far(part int, others []share) int {
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
