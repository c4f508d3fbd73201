package expression

import "math/bits"

// slotSet is a set of slots of an index, with one bit for each slot. Only add, remove and addAll change a set. A set
// that a method of Index or valueIndex returns may share memory with the index, so it must not be changed.
type slotSet []uint64

const wordBits = 64

func (m *slotSet) add(slot int) {
	for len(*m) <= slot/wordBits {
		*m = append(*m, 0)
	}
	(*m)[slot/wordBits] |= 1 << (slot % wordBits)
}

func (m slotSet) remove(slot int) { m[slot/wordBits] &^= 1 << (slot % wordBits) }

func (m *slotSet) addAll(o slotSet) {
	for len(*m) < len(o) {
		*m = append(*m, 0)
	}
	for i, word := range o {
		(*m)[i] |= word
	}
}

func (m slotSet) and(o slotSet) slotSet {
	out := make(slotSet, min(len(m), len(o)))
	for i := range out {
		out[i] = m[i] & o[i]
	}
	return out
}

func (m slotSet) minus(o slotSet) slotSet {
	out := make(slotSet, len(m))
	for i := range out {
		if out[i] = m[i]; i < len(o) {
			out[i] &^= o[i]
		}
	}
	return out
}

// countCommon returns the number of slots that are in both sets.
func (m slotSet) countCommon(o slotSet) (n int) {
	for i := range min(len(m), len(o)) {
		n += bits.OnesCount64(m[i] & o[i])
	}
	return n
}

func (m slotSet) empty() bool {
	for _, word := range m {
		if word != 0 {
			return false
		}
	}
	return true
}

// addTo adds a slot to one of several sets.
func addTo(sets map[string]slotSet, name string, slot int) {
	m := sets[name]
	m.add(slot)
	sets[name] = m
}

// removeFrom removes a slot from one of several sets. It deletes the set if that becomes empty.
func removeFrom(sets map[string]slotSet, name string, slot int) {
	if sets[name].remove(slot); sets[name].empty() {
		delete(sets, name)
	}
}
