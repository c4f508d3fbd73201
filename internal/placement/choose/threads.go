package choose

import (
	"cmp"

	"github.com/trimtab/trimtab/internal/topology"
)

// divideOverCores divides n CPUs over the cores of a group and returns the cost. It stores the division in p.portions.
// First it takes the free threads of cores that have other threads in Request.UsedWith. Then it takes whole cores.
// takeSplitCores takes the rest: from a single core that is not completely free, if possible. If several of these cores
// have enough free threads, it prefers the core with the fewest free threads. With SpreadThreads and OneThread,
// takeOneThreadEach divides n instead.
func (p *picker) divideOverCores(at, n int) (c cost, ok bool) {
	cores := p.tree.groups[at].parts
	if cores == nil {
		cores = []int{at}
	}
	p.portions = p.portions[:0]
	if p.request.Cores == SpreadThreads || p.request.Cores == OneThread {
		return p.takeOneThreadEach(cores, n)
	}
	n = p.takeWholeCores(cores, p.completeCores(cores, n))
	if n > 0 && p.request.Cores != WholeCores {
		n = p.takeSplitCores(cores, n)
	}
	return p.threadCost(), n == 0
}

// isFree reports whether all threads of a core are free.
func (p *picker) isFree(core int) bool { return int(p.freeCount[core]) == p.tree.groups[core].size }

// completeCores takes all free threads of each core that has other threads in Request.UsedWith. It skips a core that
// has more free threads than CPUs are still needed. It returns how many CPUs are needed after that.
func (p *picker) completeCores(cores []int, n int) int {
	if p.usedWithCount == nil || p.request.Cores == WholeCores {
		return n
	}
	for _, core := range cores {
		if have := int(p.freeCount[core]); p.restIsFree(core) && have <= n {
			p.portions = append(p.portions, portion{core, have})
			n -= have
		}
	}
	return n
}

// restIsFree reports whether UsedWith has threads of a core, and other threads of the core are free.
func (p *picker) restIsFree(core int) bool {
	beside, have := p.usedWithIn(core), int(p.freeCount[core])
	return beside > 0 && have > 0 && beside+have <= p.tree.groups[core].size
}

// takeWholeCores takes completely free cores. It skips a core that has more threads than CPUs are still needed. Cores
// with many threads come first, because smaller cores can give the remainder. It returns how many CPUs are needed after
// that.
func (p *picker) takeWholeCores(cores []int, n int) int {
	passCount := p.passes()
	for size := p.tree.maxThreads; size > 0 && n > 0; size-- {
		for pass := range passCount {
			for _, core := range cores {
				if size <= n && p.tree.groups[core].size == size && p.isFree(core) && (passCount == 1 || p.passOf(core) == pass) {
					p.portions = append(p.portions, portion{core, size})
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

// takeSplitCores takes n threads of cores that were not taken as a whole. It returns how many CPUs are needed after
// that. Each completely free core that was not taken has more than n threads.
func (p *picker) takeSplitCores(cores []int, n int) int {
	taken := len(p.portions)
	if core := p.fullestCore(cores, n, false, taken); core >= 0 {
		p.portions = append(p.portions, portion{core, n})
		return 0
	}
	if core := p.fullestCore(cores, n, true, taken); core >= 0 {
		p.portions = append(p.portions, portion{core, n})
		return 0
	}
	for size := p.tree.maxThreads; size > 0; size-- {
		for pass := range p.passes() {
			for _, core := range cores {
				if n > 0 && int(p.freeCount[core]) == size && p.passOf(core) == pass && !p.wasTaken(core, taken) {
					take := min(n, size)
					p.portions = append(p.portions, portion{core, take})
					n -= take
				}
			}
		}
	}
	return n
}

// fullestCore returns, of the cores with at least n free threads, the core with the fewest free threads; -1 if no core
// has n free threads. If whole is true, it considers only completely free cores, and otherwise only the other cores.
// Cores with CPUs in p.near are preferred to cores with fewer free threads. If cores are equal, it returns the core
// with the fewest CPUs in Request.Shared. The first entries of p.portions, as many as the parameter taken says, have
// cores that are taken already: fullestCore skips these cores.
func (p *picker) fullestCore(cores []int, n int, whole bool, taken int) int {
	best := -1
	for _, core := range cores {
		if int(p.freeCount[core]) < n || p.isFree(core) != whole || p.wasTaken(core, taken) {
			continue
		}
		if best < 0 || cmp.Or(p.farPenalty(core)-p.farPenalty(best), int(p.freeCount[core]-p.freeCount[best]), p.sharedIn(core)-p.sharedIn(best)) < 0 {
			best = core
		}
	}
	return best
}

// wasTaken reports whether a core is among the first n entries of p.portions.
func (p *picker) wasTaken(core, n int) bool {
	if n == 0 || !p.isFree(core) && !p.restIsFree(core) {
		return false
	}
	if p.tree.uniform && p.usedWithCount == nil && p.passes() == 1 { // takeWholeCores took the cores in their order
		return core <= p.portions[n-1].group
	}
	return isUsed(p.portions[:n], core)
}

// takeOneThreadEach takes one thread of each core, of completely free cores first. Only then does it take a
// second thread of any core.
func (p *picker) takeOneThreadEach(cores []int, n int) (c cost, ok bool) {
	for _, whole := range []bool{true, false} {
		for pass := range p.passes() {
			for _, core := range cores {
				if n > 0 && p.freeCount[core] > 0 && p.isFree(core) == whole && p.passOf(core) == pass {
					p.portions = append(p.portions, portion{core, 1})
					n--
				}
			}
		}
	}
	for took := true; took && n > 0; {
		took = false
		for i := range p.portions {
			if s := &p.portions[i]; n > 0 && s.n < int(p.freeCount[s.group]) {
				s.n++
				n--
				took = true
			}
		}
	}
	return p.threadCost(), n == 0
}

// threadCost returns the cost of the threads in p.portions.
func (p *picker) threadCost() (c cost) {
	for _, s := range p.portions {
		g := &p.tree.groups[s.group]
		if g.efficient {
			c.efficientCPUs += int16(s.n)
		}
		c.addCore(g, s.n, p.isFree(s.group), p.restIsFree(s.group), p.usedWithIn(s.group))
		if p.nearCount != nil {
			c.nearCPUs += int16(min(s.n, int(p.nearCount[s.group])))
		}
		if p.sharedCount != nil {
			c.sharedCPUs += int16(max(0, s.n-int(p.freeCount[s.group]-p.sharedCount[s.group])))
		}
	}
	return c
}

// addCore adds the cost of n threads of a core. The parameter whole says that the core is completely free. The
// parameter rest says that the core has threads in Request.UsedWith, and its other threads are free. The parameter
// beside is the number of the core's threads in Request.UsedWith.
func (c *cost) addCore(g *group, n int, whole, rest bool, beside int) {
	if rest {
		if n+beside == g.size {
			c.splitCores--
		}
		return
	}
	for l := g.outer; l <= topology.CoreLevel; l++ {
		c.spans[l]++
	}
	if g.isCoreKind {
		c.coreKinds++
	}
	if n < g.size {
		c.splitCores++
		if whole {
			c.brokenCores++
		}
	}
}

// passes returns the number of passes over the cores. Each pass takes only equally preferred cores, and the first pass
// takes the most preferred cores.
func (p *picker) passes() int {
	n := 1
	if p.sharedCount != nil {
		n = p.tree.maxThreads + 1
	}
	if p.nearCount != nil {
		n *= 2
	}
	return n
}

// passOf returns the pass (see passes) in which a core is taken.
func (p *picker) passOf(core int) int {
	return p.passNumber(p.farPenalty(core) > 0, p.sharedIn(core))
}

// farPenalty returns 1 for a core without free CPUs in p.near, and 0 for other cores. It returns 0 for all cores if
// p.near has no free CPUs.
func (p *picker) farPenalty(core int) int {
	if p.nearCount != nil && p.nearCount[core] == 0 {
		return 1
	}
	return 0
}

// passNumber returns the pass (see passes) in which a core or CPU is taken. The parameter far is true for cores without
// CPUs in p.near; these cores come last. Otherwise, the cores with the fewest CPUs in Request.Shared come first. The
// parameter sharing is the number of these CPUs.
func (p *picker) passNumber(far bool, sharing int) (pass int) {
	if far && p.nearCount != nil {
		pass = p.passes() / 2
	}
	return pass + sharing
}
