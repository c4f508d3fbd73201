package choose

// memo caches the cost of n CPUs of a group while one set is chosen from. Each way to fill the
// groups around it asks for the same numbers.
type memo struct {
	first []int32 // by group: the index of the last entry + 1; 0 for none
	all   []measured
}

// measured is the cost of n CPUs of a group.
type measured struct {
	n, next int32
	nodes   uint64 // the NUMA nodes, as in candidate, of a group on several nodes
	cost    cost
	ok      bool
}

func (m *memo) reset(groups int) {
	if m.all = m.all[:0]; m.first == nil {
		m.first = make([]int32, groups)
		return
	}
	clear(m.first)
}

func (m *memo) find(group, n int) *measured {
	for i := m.first[group]; i > 0; i = m.all[i-1].next {
		if e := &m.all[i-1]; e.n == int32(n) {
			return e
		}
	}
	return nil
}

func (m *memo) add(group int, e measured) {
	e.next = m.first[group]
	m.all = append(m.all, e)
	m.first[group] = int32(len(m.all))
}
