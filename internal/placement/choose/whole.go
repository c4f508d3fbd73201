package choose

// fillWhole divides n over several parts so that as few cores as possible are split. On hybrid
// processors that matters more than the number of caches. The parts with the most whole cores
// give all of these, until one part has enough for the rest. It takes threads of split cores
// only if no whole cores are left.
func (p *picker) fillWhole(parts []int, n int) (f filling, ok bool) {
	var at [maxWholeParts]share
	used := at[:0]
	for n > 0 {
		rest, done := p.lastWhole(parts, used, n)
		if done {
			used, n = rest, 0
			break
		}
		next := p.mostWhole(parts, used)
		if next < 0 {
			break
		}
		if len(used) == cap(used) {
			return f, false
		}
		take := min(int(p.wholes[next]), n)
		used, n = append(used, share{next, take}), n-take
	}
	if used, ok = p.addThreads(parts, used, n); !ok {
		return f, false
	}
	f.shares = p.list()
	for _, s := range used {
		c, can := p.measure(s.group, s.n)
		f.add(p, s, c)
		ok = ok && can
	}
	return f, ok
}

// maxWholeParts limits how many parts give whole cores.
const maxWholeParts = 64

// mostWhole returns the unused part with the most CPUs in whole cores; -1 if none has any.
func (p *picker) mostWhole(parts []int, used []share) int {
	best := -1
	for _, part := range parts {
		if p.wholes[part] > 0 && !isUsed(used, part) && (best < 0 || p.wholes[part] > p.wholes[best]) {
			best = part
		}
	}
	return best
}

// lastWhole adds the last n CPUs to shares if that splits no more cores than necessary: to a
// part that gives CPUs already, or as the share of another part.
func (p *picker) lastWhole(parts []int, used []share, n int) (shares []share, done bool) {
	least := int16(0)
	if n%p.tree.threads != 0 {
		least = 1
	}
	for i, s := range used {
		if c, ok := p.measure(s.group, s.n+n); ok && int(p.have[s.group]) >= s.n+n && c.split <= least {
			used[i].n += n
			return used, true
		}
	}
	last, _, of := p.best(parts, n, used)
	if of == 0 || last.cost.split > least || len(used) == cap(used) {
		return used, false
	}
	return append(used, share{last.group, n}), true
}

// addThreads adds n more CPUs, from parts that give some already and then from those with the
// most.
func (p *picker) addThreads(parts []int, used []share, n int) (shares []share, ok bool) {
	for i, s := range used {
		more := min(n, int(p.have[s.group])-s.n)
		used[i].n, n = s.n+more, n-more
	}
	for n > 0 {
		next := p.largest(parts, used)
		if next < 0 || len(used) == cap(used) {
			return used, false
		}
		take := min(n, int(p.have[next]))
		used, n = append(used, share{next, take}), n-take
	}
	return used, true
}
