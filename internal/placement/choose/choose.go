package choose

import (
	"github.com/trimtab/trimtab/internal/topology"
)

// Choose chooses CPUs for a request. The error is a *TooFewCPUsError or an *InvalidCountError.
func (t *Tree) Choose(w Request) (Choice, error) {
	if w.N <= 0 {
		return Choice{}, nil
	}
	w.From, w.UsedWith = w.From.And(t.machine.Online()), w.UsedWith.And(t.machine.Online())
	buffers, _ := t.scratchPool.Get().(*scratch)
	if buffers == nil {
		buffers = &scratch{}
	}
	defer t.scratchPool.Put(buffers)
	p := picker{tree: t, request: w, scratch: buffers}
	free := p.usableCPUs(w.From)
	if err := p.checkPossible(free); err != nil {
		return Choice{}, err
	}
	free = p.applyPreferences(free)
	p.computeMemoryDistances()
	if !p.chooseWithReserve(free) && !p.spread(free, w.N, w.Spread) {
		return Choice{}, &InvalidCountError{w.N, "cannot be made up of the whole cores that are available"}
	}
	c := Choice{CPUs: p.chosen, Why: p.reasons}
	if w.Cores == OneThread {
		c.Idle = t.machine.ExpandToGroups(topology.CoreLevel, p.chosen).Minus(p.chosen)
	}
	return c, nil
}

// usableCPUs returns the CPUs of a set that the request may use. With WholeCores these are the CPUs of whole
// cores, and with OneThread the first CPU of each whole core.
func (p *picker) usableCPUs(from topology.Set) topology.Set {
	if p.request.Cores != WholeCores && p.request.Cores != OneThread {
		return from
	}
	return p.wholeCoreCPUs(from)
}

// wholeCoreCPUs returns the CPUs of the cores whose threads are all in a set. With OneThread it returns only the first
// CPU of each such core.
func (p *picker) wholeCoreCPUs(from topology.Set) topology.Set {
	var out topology.Set
	for first := range from.All() {
		core := p.tree.cores[p.tree.machine.GroupOf(topology.CoreLevel, first)]
		if core[0] != first || !hasAll(from, core) {
			continue // each core is handled at its first CPU
		}
		if p.request.Cores == OneThread {
			core = core[:1]
		}
		for _, cpu := range core {
			out.Add(cpu)
		}
	}
	return out
}

// hasAll reports whether the set has all of the CPUs.
func hasAll(set topology.Set, cpus []int) bool {
	for _, cpu := range cpus {
		if !set.Has(cpu) {
			return false
		}
	}
	return true
}

// checkPossible returns an error if no choice from the free CPUs can meet the request.
func (p *picker) checkPossible(free topology.Set) error {
	w := p.request
	if have := free.Len(); have < w.N {
		return &TooFewCPUsError{w.N, have, [...]string{
			"to choose from", "in whole cores to choose from", "whole cores to choose one thread of each", "to choose from", "to choose from",
		}[w.Cores]}
	}
	if w.Cores == WholeCores && w.N%p.unit() != 0 {
		return &InvalidCountError{w.N, "are not whole cores: each core has " + formatCount(p.tree.maxThreads, "thread")}
	}
	if !w.Even || len(w.Spread) == 0 {
		return nil
	}
	parts := p.tree.divide(free, w.Spread[0])
	// Each group of this level that has CPUs in From must give equally many CPUs. That is impossible if one of these
	// groups has no free CPU.
	if n := p.tree.machine.CountGroups(w.Spread[0], w.From); len(parts) < n {
		return &TooFewCPUsError{w.N, free.Len(), "available, but not in every " + w.Spread[0].String()}
	}
	each := w.N / len(parts)
	if each*len(parts) != w.N || each%p.unit() != 0 {
		return &InvalidCountError{w.N, "cannot be divided evenly over " + formatCount(len(parts), w.Spread[0].String())}
	}
	for _, part := range parts {
		if part.Len() < each {
			return &TooFewCPUsError{each, part.Len(), "in one " + w.Spread[0].String()}
		}
	}
	return nil
}

// unit returns how many CPUs the search takes together: all threads of a core for a request with WholeCores, and
// otherwise 1 CPU. Each number of CPUs that is taken of a group is a multiple of unit. If the machine's cores differ in
// their number of threads, unit returns 1. Choose then returns an error if whole cores do not add up to the requested
// number.
func (p *picker) unit() int {
	if p.request.Cores == WholeCores && p.tree.uniform {
		return p.tree.maxThreads
	}
	return 1
}

// applyPreferences returns the free CPUs that remain after the preferences of the request. It applies the preferences
// in order, and skips a preference that would leave too few CPUs.
func (p *picker) applyPreferences(free topology.Set) topology.Set {
	for _, pref := range p.request.Preferences {
		left, kept := p.applyPreference(free, &pref)
		if left == free {
			continue
		}
		partly := !kept && pref.Partly && !left.Empty() && p.near.Empty()
		p.reasons = append(p.reasons, Reason{
			Rule: pref.Name, Step: PreferenceApplied, Avoid: pref.Avoid, Candidates: free.Len(), Remaining: left.Len(), Kept: kept, Partly: partly,
		})
		if kept {
			free = left
		} else if partly {
			p.near, p.nearName = p.matchingCPUs(pref.CPUs), pref.Name
		}
	}
	return p.keepWhole(free)
}

// matchingCPUs returns the CPUs that match a preference for the given CPUs. With OneThread, the other threads of
// their cores match, too.
func (p *picker) matchingCPUs(cpus topology.Set) topology.Set {
	if p.request.Cores == OneThread {
		return p.tree.machine.ExpandToGroups(topology.CoreLevel, cpus)
	}
	return cpus
}

// applyPreference returns the free CPUs that remain after one preference, and whether they are enough for the
// request.
func (p *picker) applyPreference(free topology.Set, pref *Preference) (left topology.Set, kept bool) {
	left = free.And(p.matchingCPUs(pref.CPUs))
	if pref.Avoid {
		left = free.Minus(p.matchingCPUs(pref.CPUs))
	}
	if left == free {
		return free, true
	}
	if p.request.Cores == WholeCores {
		left = p.usableCPUs(left)
	}
	return left, left.Len() >= p.request.N && p.checkPossible(left) == nil
}

// chooseWithReserve chooses CPUs, and leaves as many CPUs free as Request.Reserve says. If this is impossible, it
// chooses nothing and returns false. It also does so if Request.Reserve is empty or Request.Spread is not empty.
func (p *picker) chooseWithReserve(free topology.Set) bool {
	if len(p.request.Spread) > 0 {
		return false
	}
	if p.computeReserve(free); len(p.leaveFree) == 0 {
		return false
	}
	p.reset(free)
	r := Reason{Rule: "CPUs that pools bound to a NUMA node need", Step: PreferenceApplied, Avoid: true, Candidates: free.Len(), Remaining: int(p.freeCount[0])}
	r.Kept = r.Remaining >= p.request.N
	reasonIndex := len(p.reasons)
	p.reasons = append(p.reasons, r)
	if r.Kept && p.take(0, p.request.N) {
		return true
	}
	p.reasons[reasonIndex].Kept = false
	p.reasons, p.chosen, p.leaveFree = p.reasons[:reasonIndex+1], topology.Set{}, nil
	return false
}

// computeReserve stores in p.leaveFree how many of the free CPUs must stay free on each NUMA node because of
// Request.Reserve.
func (p *picker) computeReserve(free topology.Set) {
	for _, l := range p.request.Reserve {
		if n := l.N - l.CPUs.Minus(free).Len(); n > 0 {
			at, _ := p.tree.machine.NodeIndex(l.Node)
			p.leaveFree = append(p.leaveFree, leaveLimit{at, n})
		}
	}
}

// limitOnNode returns how many of n free CPUs may be taken on the NUMA node with the index node.
func (p *picker) limitOnNode(node, n int) int {
	for _, l := range p.leaveFree {
		if l.node == node {
			n = max(0, n-l.n)
			n -= n % p.unit()
		}
	}
	return n
}

// keepWhole returns only the CPUs of whole cores, if the request prefers whole cores and these have enough
// CPUs. Otherwise it returns all CPUs.
func (p *picker) keepWhole(free topology.Set) topology.Set {
	if p.request.Cores != PreferWhole || p.request.N < p.tree.maxThreads {
		return free
	}
	whole := p.wholeCoreCPUs(free)
	if whole == free {
		return free
	}
	kept := whole.Len() >= p.request.N && p.checkPossible(whole) == nil
	p.reasons = append(p.reasons, Reason{Rule: "whole cores", Step: PreferenceApplied, Candidates: free.Len(), Remaining: whole.Len(), Kept: kept})
	if kept {
		return whole
	}
	return free
}

// spread divides n over the groups of the first level, then over the groups of the next level inside them,
// and so on. It takes the CPUs in the groups of the last level. It returns false if the groups have too few CPUs.
func (p *picker) spread(free topology.Set, n int, levels []topology.Level) bool {
	if len(levels) == 0 {
		p.reset(free)
		return p.take(0, n)
	}
	parts := p.tree.divide(free, levels[0])
	p.reasons = append(p.reasons, Reason{Rule: "spread", Step: CountDivided, Level: levels[0], Candidates: len(parts)})
	for i, portion := range p.evenShares(parts, n) {
		if portion > 0 && !p.spread(parts[i], portion, levels[1:]) {
			return false
		}
		n -= portion
	}
	return n == 0
}

// evenShares divides n over parts as evenly as the sizes of the parts allow, in multiples of unit. The remainder goes
// to the parts with the most CPUs. If parts have equally many CPUs, the first of them gets it.
func (p *picker) evenShares(parts []topology.Set, n int) []int {
	unit := p.unit()
	have, out := make([]int, len(parts)), make([]int, len(parts))
	for i, s := range parts {
		have[i] = s.Len()
	}
	for n > 0 {
		best := -1
		for i := range parts {
			if out[i]+unit > have[i] {
				continue
			}
			if best < 0 || out[i] < out[best] || out[i] == out[best] && have[i] > have[best] {
				best = i
			}
		}
		if best < 0 {
			return out // the parts have too few CPUs: spread returns false, and Choose returns an error
		}
		out[best] += unit
		n -= unit
	}
	return out
}
