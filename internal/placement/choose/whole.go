package choose

// fillWhole divides n over several parts so that as few cores as possible are split. On hybrid processors the number of
// split cores is more important than the number of caches. It takes all whole cores of the parts with the most whole
// cores, until one part has enough CPUs for the rest. It takes threads of split cores only if no whole cores are left.
func (p *picker) fillWhole(parts []int, n int) (f division, ok bool) {
	var at [maxWholeParts]portion
	used := at[:0]
	for n > 0 {
		rest, done := p.addLastCPUs(parts, used, n)
		if done {
			used, n = rest, 0
			break
		}
		next := p.partWithMostWhole(parts, used)
		if next < 0 {
			break
		}
		if len(used) == cap(used) {
			return f, false
		}
		take := min(int(p.wholeCoreCount[next]), n)
		used, n = append(used, portion{next, take}), n-take
	}
	if used, ok = p.addThreads(parts, used, n); !ok {
		return f, false
	}
	f.portions = p.emptyList()
	for _, s := range used {
		c, can := p.costOf(s.group, s.n)
		f.add(p, s, c)
		ok = ok && can
	}
	return f, ok
}

// maxWholeParts is the largest number of parts in a result of fillWhole.
const maxWholeParts = 64

// partWithMostWhole returns the unused part with the most CPUs in whole cores; -1 if no unused part has whole cores.
func (p *picker) partWithMostWhole(parts []int, used []portion) int {
	best := -1
	for _, part := range parts {
		if p.wholeCoreCount[part] > 0 && !isUsed(used, part) && (best < 0 || p.wholeCoreCount[part] > p.wholeCoreCount[best]) {
			best = part
		}
	}
	return best
}

// addLastCPUs adds the last n CPUs to a portion of a part that is already used, or as a portion of another part. The
// result done is false if this would split more cores than necessary.
func (p *picker) addLastCPUs(parts []int, used []portion, n int) (portions []portion, done bool) {
	least := int16(0)
	if n%p.tree.maxThreads != 0 {
		least = 1
	}
	for i, s := range used {
		if c, ok := p.costOf(s.group, s.n+n); ok && int(p.freeCount[s.group]) >= s.n+n && c.splitCores <= least {
			used[i].n += n
			return used, true
		}
	}
	last, _, of := p.bestGroup(parts, n, used)
	if of == 0 || last.cost.splitCores > least || len(used) == cap(used) {
		return used, false
	}
	return append(used, portion{last.group, n}), true
}

// addThreads adds n more CPUs: first of the parts that are already used, then of the parts with the most free CPUs. The
// result ok is false if there are too few CPUs.
func (p *picker) addThreads(parts []int, used []portion, n int) (portions []portion, ok bool) {
	for i, s := range used {
		more := min(n, int(p.freeCount[s.group])-s.n)
		used[i].n, n = s.n+more, n-more
	}
	for n > 0 {
		next := p.largestGroup(parts, used)
		if next < 0 || len(used) == cap(used) {
			return used, false
		}
		take := min(n, int(p.freeCount[next]))
		used, n = append(used, portion{next, take}), n-take
	}
	return used, true
}
