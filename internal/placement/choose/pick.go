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

	// Of the set that is chosen from at the moment, by group:
	free   topology.Set
	have   []int // how many of its CPUs are free, less those that are left to others
	beside []int // how many of its CPUs are in Beside; nil where that is empty
	nearby []int // how many of those that are free are near; nil where nothing is
	shared []int // how many of those that are free are Shared; nil where that is empty
	known  []measured
	some   []share
	// besideNodes are the NUMA nodes of Beside, by index.
	besideNodes []int
}

// leave is how many CPUs of a NUMA node, by its index, are left.
type leave struct{ node, n int }

// share is how many CPUs a group gives.
type share struct{ group, n int }

// measured is what n CPUs of an entirely free group cost. Groups of one shape
// cost the same.
type measured struct {
	shape, n int
	cost     cost
}

// from starts to choose from other CPUs.
func (p *picker) from(free topology.Set) {
	p.free, p.known = free, p.known[:0]
	p.have = p.count(p.have, free)
	if len(p.leave) > 0 {
		p.hold()
	}
	if near := p.near.And(free); !near.Empty() {
		p.nearby = p.count(p.nearby, near)
	} else {
		p.nearby = nil
	}
	if shared := p.want.Shared.And(free); !shared.Empty() {
		p.shared = p.count(p.shared, shared)
	} else {
		p.shared = nil
	}
	if p.want.Beside.Empty() || p.beside != nil {
		return
	}
	p.beside = p.count(nil, p.want.Beside)
	for i, n := range p.tree.machine.Nodes {
		if !n.CPUs.And(p.want.Beside).Empty() {
			p.besideNodes = append(p.besideNodes, i)
		}
	}
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
			for _, l := range p.leave {
				if l.node == g.node {
					n := max(0, p.have[i]-l.n)
					p.have[i] = n - n%p.unit()
				}
			}
		}
	}
}

// count returns how many CPUs of a set each group has.
func (p *picker) count(into []int, s topology.Set) []int {
	groups := p.tree.groups
	if into == nil {
		into = make([]int, len(groups))
	}
	for i := len(groups) - 1; i >= 0; i-- {
		n := 0
		for _, cpu := range groups[i].threads {
			if s.Has(cpu) {
				n++
			}
		}
		for _, part := range groups[i].parts {
			n += into[part]
		}
		into[i] = n
	}
	return into
}

func (p *picker) besides(group int) int {
	if p.beside == nil {
		return 0
	}
	return p.beside[group]
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
	best, rule, of, f, ok := p.split(g, n)
	if of > 0 {
		p.why = append(p.why, Reason{Step: Entered, Rule: rule, Level: p.tree.groups[best.group].outer, Kinds: p.tree.byKind(g), Of: of})
		return p.take(best.group, n)
	}
	p.why = append(p.why, Reason{Step: Filled, Level: p.tree.groups[g.parts[0]].outer, Kinds: p.tree.byKind(g), Of: len(g.parts), Left: len(f.shares)})
	if fewer, level, of := p.overPackages(g, n, f.shares, f.cost); ok && of > 0 {
		f.shares = fewer
		p.why = append(p.why, Reason{Step: Filled, Level: level, Of: of, Left: len(fewer)})
	}
	for _, s := range f.shares {
		ok = ok && p.take(s.group, s.n)
	}
	return ok
}

// split says which parts of a group give n CPUs: of is how many hold them all, and best
// the best of these. Where it is 0, several give a part: none holds all, or some are
// beside those they are used with, and that takes no new group and no core more.
func (p *picker) split(g *group, n int) (best candidate, rule string, of int, f filling, ok bool) {
	best, rule, of = p.best(g.parts, n, nil)
	if of > 0 && (p.beside == nil || best.beside > 0) {
		return best, rule, of, f, true
	}
	f, ok = p.fill(g.parts, n)
	if of > 0 && (!ok || f.fresh > 1 || f.beside == 0 || f.cost.spans[topology.CoreLevel] > best.cost.spans[topology.CoreLevel]) {
		return best, rule, of, f, true
	}
	return best, rule, 0, f, ok
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
	alike := p.have[at] == g.size && p.besides(at) == 0 && (p.nearby == nil || p.nearby[at] == 0) && (p.shared == nil || p.shared[at] == 0)
	if alike {
		for i := range p.known {
			if p.known[i].shape == g.shape && p.known[i].n == n {
				return p.known[i].cost, true
			}
		}
	}
	if g.ofCores {
		c, ok = p.threads(at, n)
	} else {
		best, _, of, f, found := p.split(g, n)
		if c, ok = f.cost, found; of > 0 {
			c = best.cost
		}
	}
	for l := g.outer; l <= g.inner && l < topology.CoreLevel; l++ {
		c.spans[l]++
	}
	if g.ofKind {
		c.kinds++
	}
	if alike && ok {
		p.known = append(p.known, measured{g.shape, n, c})
	}
	return c, ok
}

// best returns the best of the groups that hold n, by what rule it beat the
// next best, and how many there were. Groups already used are left out, and
// nearness to them counts.
func (p *picker) best(parts []int, n int, used []share) (best candidate, rule string, of int) {
	var next candidate
	for _, part := range parts {
		if p.have[part] < n || isUsed(used, part) {
			continue
		}
		c := candidate{group: part, far: p.far(part, used), beside: p.besides(part), left: p.have[part]}
		var ok bool
		if c.cost, ok = p.measure(part, n); !ok {
			continue
		}
		of++
		switch {
		case of == 1:
			best = c
		case yes(p.better(&c, &best)):
			best, next = c, best
		case of == 2 || yes(p.better(&c, &next)):
			next = c
		}
	}
	if of > 1 {
		if _, rule = p.better(&best, &next); rule == mostCPUsNear {
			rule += p.nearName
		}
	}
	return best, rule, of
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

func yes(yes bool, _ string) bool { return yes }
