package choose

// memo caches the cost of taking n CPUs of a group, until the set of free CPUs changes. A search needs the
// same costs many times.
type memo struct {
	heads   []int32 // by group: the index of the last entry + 1; 0 for none
	entries []memoEntry
}

// memoEntry is the cost of taking n CPUs of a group. next is the index of the group's next entry + 1; 0 for
// none.
type memoEntry struct {
	n, next int32
	nodes   uint64 // the NUMA nodes of the CPUs, as in candidate; only for a group on several nodes
	cost    cost
	ok      bool
}

func (m *memo) reset(groups int) {
	if m.entries = m.entries[:0]; m.heads == nil {
		m.heads = make([]int32, groups)
		return
	}
	clear(m.heads)
}

func (m *memo) find(group, n int) *memoEntry {
	for i := m.heads[group]; i > 0; i = m.entries[i-1].next {
		if e := &m.entries[i-1]; e.n == int32(n) {
			return e
		}
	}
	return nil
}

func (m *memo) add(group int, e memoEntry) {
	e.next = m.heads[group]
	m.entries = append(m.entries, e)
	m.heads[group] = int32(len(m.entries))
}
