package choose

// memo caches the cost of taking n CPUs of a group, until the set of free CPUs changes. A search needs the
// same costs many times.
type memo struct {
	heads   []int32 // for each group: the index of its newest entry plus 1; 0 if it has no entry
	entries []memoEntry
}

// memoEntry is the cost of taking n CPUs of a group.
type memoEntry struct {
	n     int32
	next  int32  // the index of the group's next older entry plus 1; 0 if there is none
	nodes uint64 // the NUMA nodes of the CPUs, as a bit set of indices; only for a group on several nodes
	cost  cost
	ok    bool // the CPUs can be taken
}

// reset removes all entries. The parameter groups is the number of groups.
func (m *memo) reset(groups int) {
	if m.entries = m.entries[:0]; m.heads == nil {
		m.heads = make([]int32, groups)
		return
	}
	clear(m.heads)
}

// find returns the entry for taking n CPUs of a group, or nil if there is none.
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
