package choose

import (
	"github.com/trimtab/trimtab/internal/topology"
)

// Choose chooses CPUs for a request. Errors are a *ShortError or a *ShapeError; then nothing is
// chosen.
func (t *Tree) Choose(w Want) (Chosen, error) {
	if w.N <= 0 {
		return Chosen{}, nil
	}
	w.From, w.UsedWith = w.From.And(t.machine.Online()), w.UsedWith.And(t.machine.Online())
	room, _ := t.spare.Get().(*scratch)
	if room == nil {
		room = &scratch{}
	}
	defer t.spare.Put(room)
	p := picker{tree: t, want: w, scratch: room}
	free := p.usable(w.From)
	if err := p.check(free); err != nil {
		return Chosen{}, err
	}
	free = p.narrow(free)
	p.weighMemory()
	if !p.leaving(free) && !p.spread(free, w.N, w.Spread) {
		return Chosen{}, &ShapeError{w.N, "not possible with the whole cores that are available"}
	}
	c := Chosen{CPUs: p.out, Why: p.why}
	if w.Cores == OneThread {
		c.Idle = t.machine.Spread(topology.CoreLevel, p.out).Minus(p.out)
	}
	return c, nil
}

// usable returns the threads of a set that the request's use of cores allows: all threads of
// whole cores, or the first thread of each whole core.
func (p *picker) usable(from topology.Set) topology.Set {
	if p.want.Cores != WholeCores && p.want.Cores != OneThread {
		return from
	}
	return p.ofWhole(from)
}

// ofWhole returns all threads of the whole cores of a set, or only the first of each if one
// thread per core is wanted.
func (p *picker) ofWhole(from topology.Set) topology.Set {
	var out topology.Set
	for first := range from.All() {
		core := p.tree.cores[p.tree.machine.GroupOf(topology.CoreLevel, first)]
		if core[0] != first || !hasAll(from, core) {
			continue // the first thread of a whole core is in the set, too
		}
		if p.want.Cores == OneThread {
			core = core[:1]
		}
		for _, cpu := range core {
			out.Add(cpu)
		}
	}
	return out
}

func hasAll(set topology.Set, cpus []int) bool {
	for _, cpu := range cpus {
		if !set.Has(cpu) {
			return false
		}
	}
	return true
}

// check refuses requests that no choice can meet.
func (p *picker) check(free topology.Set) error {
	w := p.want
	if have := free.Len(); have < w.N {
		return &ShortError{w.N, have, [...]string{
			"to choose from", "in whole cores to choose from", "whole cores to choose one thread of each", "to choose from", "to choose from",
		}[w.Cores]}
	}
	if w.Cores == WholeCores && w.N%p.unit() != 0 {
		return &ShapeError{w.N, "are no whole cores: each core has " + count(p.tree.threads, "thread")}
	}
	if !w.Even || len(w.Spread) == 0 {
		return nil
	}
	parts := p.tree.divide(free, w.Spread[0])
	// A group without free CPUs still counts as a group that must give its share.
	if n := p.tree.machine.Count(w.Spread[0], w.From); len(parts) < n {
		return &ShortError{w.N, free.Len(), "available, in fewer groups than the containers that share them"}
	}
	each := w.N / len(parts)
	if each*len(parts) != w.N || each%p.unit() != 0 {
		return &ShapeError{w.N, "cannot be divided evenly over " + count(len(parts), w.Spread[0].String())}
	}
	for _, part := range parts {
		if part.Len() < each {
			return &ShortError{each, part.Len(), "in one " + w.Spread[0].String()}
		}
	}
	return nil
}

// unit is the step by which a choice can grow: the threads of a core if only whole cores are
// taken. On a machine with cores of different sizes it is 1, and a later check finds impossible
// sums.
func (p *picker) unit() int {
	if p.want.Cores == WholeCores && p.tree.uniform {
		return p.tree.threads
	}
	return 1
}

// narrow applies the preferences. It skips one that would leave too few CPUs.
func (p *picker) narrow(free topology.Set) topology.Set {
	for _, pref := range p.want.Preferences {
		left, kept := p.prefer(free, &pref)
		if left == free {
			continue
		}
		partly := !kept && pref.Partly && !left.Empty() && p.near.Empty()
		p.why = append(p.why, Reason{
			Rule: pref.Name, Step: Narrowed, Avoid: pref.Avoid, Of: free.Len(), Left: left.Len(), Kept: kept, Partly: partly,
		})
		if kept {
			free = left
		} else if partly {
			p.near, p.nearName = p.of(pref.CPUs), pref.Name
		}
	}
	return p.keepWhole(free)
}

// of returns the CPUs that count for a preference. A thread also counts for its siblings.
func (p *picker) of(cpus topology.Set) topology.Set {
	if p.want.Cores == OneThread {
		return p.tree.machine.Spread(topology.CoreLevel, cpus)
	}
	return cpus
}

// prefer returns the free CPUs that remain after a preference, and whether they are enough.
func (p *picker) prefer(free topology.Set, pref *Preference) (left topology.Set, kept bool) {
	left = free.And(p.of(pref.CPUs))
	if pref.Avoid {
		left = free.Minus(p.of(pref.CPUs))
	}
	if left == free {
		return free, true
	}
	if p.want.Cores == WholeCores {
		left = p.usable(left)
	}
	return left, left.Len() >= p.want.N && p.check(left) == nil
}

// leaving chooses CPUs but keeps free the CPUs that others need on NUMA nodes. It returns false,
// and chooses nothing, if that is impossible or if others need no CPUs.
func (p *picker) leaving(free topology.Set) bool {
	if len(p.want.Spread) > 0 {
		return false
	}
	if p.leaves(free); len(p.leaveFree) == 0 {
		return false
	}
	p.from(free)
	r := Reason{Rule: "CPUs that pools bound to a NUMA node need", Step: Narrowed, Avoid: true, Of: free.Len(), Left: int(p.have[0])}
	r.Kept = r.Left >= p.want.N
	said := len(p.why)
	p.why = append(p.why, r)
	if r.Kept && p.take(0, p.want.N) {
		return true
	}
	p.why[said].Kept = false
	p.why, p.out, p.leaveFree = p.why[:said+1], topology.Set{}, nil
	return false
}

// leaves computes how many CPUs of each NUMA node stay free for others when the choice is
// limited to the given CPUs.
func (p *picker) leaves(free topology.Set) {
	for _, l := range p.want.Reserve {
		if n := l.N - l.CPUs.Minus(free).Len(); n > 0 {
			at, _ := p.tree.machine.NodeIndex(l.Node)
			p.leaveFree = append(p.leaveFree, leaveLimit{at, n})
		}
	}
}

// reduced returns how many of n CPUs of a NUMA node may be taken. node is its index.
func (p *picker) reduced(node, n int) int {
	for _, l := range p.leaveFree {
		if l.node == node {
			n = max(0, n-l.n)
			n -= n % p.unit()
		}
	}
	return n
}

// keepWhole reduces a set to its whole cores, if the request prefers whole cores and they have
// enough CPUs.
func (p *picker) keepWhole(free topology.Set) topology.Set {
	if p.want.Cores != PreferWhole || p.want.N < p.tree.threads {
		return free
	}
	whole := p.ofWhole(free)
	if whole == free {
		return free
	}
	kept := whole.Len() >= p.want.N && p.check(whole) == nil
	p.why = append(p.why, Reason{Rule: "whole cores", Step: Narrowed, Of: free.Len(), Left: whole.Len(), Kept: kept})
	if kept {
		return whole
	}
	return free
}

// spread divides n over the groups of the given levels, outermost first, and takes each part at
// the last level.
func (p *picker) spread(free topology.Set, n int, over []topology.Level) bool {
	if len(over) == 0 {
		p.from(free)
		return p.take(0, n)
	}
	parts := p.tree.divide(free, over[0])
	p.why = append(p.why, Reason{Rule: "spread", Step: Divided, Level: over[0], Of: len(parts)})
	for i, share := range p.shares(parts, n) {
		if share > 0 && !p.spread(parts[i], share, over[1:]) {
			return false
		}
		n -= share
	}
	return n == 0
}

// shares divides n over parts as evenly as their sizes allow, in units. The remainder goes to
// the parts with the most CPUs left, the first of them.
func (p *picker) shares(parts []topology.Set, n int) []int {
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
			return out // the remainder fits nowhere; the caller reports the shortage
		}
		out[best] += unit
		n -= unit
	}
	return out
}
