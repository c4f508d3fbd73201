package choose

import (
	"cmp"

	"github.com/trimtab/trimtab/internal/topology"
)

// threads divides n over the cores of a group, into p.some, and returns the cost. It takes the
// remaining threads of cores in UsedWith, then whole cores that fit, then the missing threads
// of one split core, the fullest that has enough.
func (p *picker) threads(at, n int) (c cost, ok bool) {
	cores := p.tree.groups[at].parts
	if cores == nil {
		cores = []int{at}
	}
	p.some = p.some[:0]
	if p.want.Cores == SpreadThreads || p.want.Cores == OneThread {
		return p.oneOfEach(cores, n)
	}
	n = p.wholeCores(cores, p.completing(cores, n))
	if n > 0 && p.want.Cores != WholeCores {
		n = p.parts(cores, n)
	}
	return p.threadCost(), n == 0
}

func (p *picker) whole(core int) bool { return int(p.have[core]) == p.tree.groups[core].size }

// completing takes the free threads of cores in UsedWith, if all of them fit, and returns how
// many CPUs are still missing.
func (p *picker) completing(cores []int, n int) int {
	if p.beside == nil || p.want.Cores == WholeCores {
		return n
	}
	for _, core := range cores {
		if have := int(p.have[core]); p.rest(core) && have <= n {
			p.some = append(p.some, share{core, have})
			n -= have
		}
	}
	return n
}

// rest reports whether the free threads of a core are all of its threads outside UsedWith.
func (p *picker) rest(core int) bool {
	beside, have := p.besides(core), int(p.have[core])
	return beside > 0 && have > 0 && beside+have <= p.tree.groups[core].size
}

// wholeCores takes whole cores that fit and returns how many CPUs are still missing. Large
// cores come first, since small ones can fill the remainder.
func (p *picker) wholeCores(cores []int, n int) int {
	turns := p.turns()
	for size := p.tree.threads; size > 0 && n > 0; size-- {
		for turn := range turns {
			for _, core := range cores {
				if size <= n && p.tree.groups[core].size == size && p.whole(core) && (turns == 1 || p.turn(core) == turn) {
					p.some = append(p.some, share{core, size})
					n -= size
				}
			}
		}
		if p.tree.uniform {
			break
		}
	}
	return n
}

// parts takes n threads of cores that are not taken whole. n is less than the size of each
// whole core that is left.
func (p *picker) parts(cores []int, n int) int {
	taken := len(p.some)
	if core := p.fullest(cores, n, false, taken); core >= 0 {
		p.some = append(p.some, share{core, n})
		return 0
	}
	if core := p.fullest(cores, n, true, taken); core >= 0 {
		p.some = append(p.some, share{core, n})
		return 0
	}
	for size := p.tree.threads; size > 0; size-- {
		for turn := range p.turns() {
			for _, core := range cores {
				if n > 0 && int(p.have[core]) == size && p.turn(core) == turn && !p.taken(core, taken) {
					take := min(n, size)
					p.some = append(p.some, share{core, take})
					n -= take
				}
			}
		}
	}
	return n
}

// fullest returns the core with the fewest free threads that has at least n, of the whole or of
// the split cores. Near cores come first; of equal ones, those with the fewest Shared CPUs; -1
// if there is none.
func (p *picker) fullest(cores []int, n int, whole bool, taken int) int {
	best := -1
	for _, core := range cores {
		if int(p.have[core]) < n || p.whole(core) != whole || p.taken(core, taken) {
			continue
		}
		if best < 0 || cmp.Or(p.distant(core)-p.distant(best), int(p.have[core]-p.have[best]), p.sharing(core)-p.sharing(best)) < 0 {
			best = core
		}
	}
	return best
}

// taken reports whether a core is among the first n cores that were taken, as a whole or to
// complete it.
func (p *picker) taken(core, n int) bool {
	if n == 0 || !p.whole(core) && !p.rest(core) {
		return false
	}
	if p.tree.uniform && p.beside == nil && p.turns() == 1 { // they were taken in order
		return core <= p.some[n-1].group
	}
	return isUsed(p.some[:n], core)
}

// oneOfEach takes one thread of each core, whole cores first, before it takes a second one of
// any.
func (p *picker) oneOfEach(cores []int, n int) (c cost, ok bool) {
	for _, whole := range []bool{true, false} {
		for turn := range p.turns() {
			for _, core := range cores {
				if n > 0 && p.have[core] > 0 && p.whole(core) == whole && p.turn(core) == turn {
					p.some = append(p.some, share{core, 1})
					n--
				}
			}
		}
	}
	for took := true; took && n > 0; {
		took = false
		for i := range p.some {
			if s := &p.some[i]; n > 0 && s.n < int(p.have[s.group]) {
				s.n++
				n--
				took = true
			}
		}
	}
	return p.threadCost(), n == 0
}

// threadCost returns the cost of the threads in p.some.
func (p *picker) threadCost() (c cost) {
	for _, s := range p.some {
		g := &p.tree.groups[s.group]
		if g.efficient {
			c.efficient += int16(s.n)
		}
		c.addCore(g, s.n, p.whole(s.group), p.rest(s.group), p.besides(s.group))
		if p.nearby != nil {
			c.near += int16(min(s.n, int(p.nearby[s.group])))
		}
		if p.shared != nil {
			c.shared += int16(max(0, s.n-int(p.have[s.group]-p.shared[s.group])))
		}
	}
	return c
}

// addCore adds the cost of n threads of a core, of which beside are in UsedWith.
func (c *cost) addCore(g *group, n int, whole, rest bool, beside int) {
	if rest {
		if n+beside == g.size {
			c.split--
		}
		return
	}
	for l := g.outer; l <= topology.CoreLevel; l++ {
		c.spans[l]++
	}
	if g.ofKind {
		c.kinds++
	}
	if n < g.size {
		c.split++
		if whole {
			c.broken++
		}
	}
}

// turns returns the number of passes in which cores are taken; see turnOf.
func (p *picker) turns() int {
	n := 1
	if p.shared != nil {
		n = p.tree.threads + 1
	}
	if p.nearby != nil {
		n *= 2
	}
	return n
}

// turn returns the pass in which a core is taken.
func (p *picker) turn(core int) int {
	return p.turnOf(p.distant(core) > 0, p.sharing(core))
}

// distant is 1 for a core without near CPUs.
func (p *picker) distant(core int) int {
	if p.nearby != nil && p.nearby[core] == 0 {
		return 1
	}
	return 0
}

// turnOf returns in which pass a core or CPU is taken: first near ones, and of these the ones
// with the fewest Shared CPUs.
func (p *picker) turnOf(far bool, sharing int) (turn int) {
	if far && p.nearby != nil {
		turn = p.turns() / 2
	}
	return turn + sharing
}
