package expression

import "math/bits"

// slotSet is a set of slots of an index, with one bit for each slot. Only add, remove and addAll change a set. A set
// that a method of Index or valueIndex returns may share memory with the index, so it must not be changed.
type slotSet []uint64

// wordBits is the number of slots in one element of a slotSet.
const wordBits = 64

// add adds a slot to the set.
func (s *slotSet) add(slot int) {
	for len(*s) <= slot/wordBits {
		*s = append(*s, 0)
	}
	(*s)[slot/wordBits] |= 1 << (slot % wordBits)
}

// remove removes a slot from the set. The slice must be long enough to hold the slot.
func (s slotSet) remove(slot int) { s[slot/wordBits] &^= 1 << (slot % wordBits) }

// addAll adds the slots of the set o.
func (s *slotSet) addAll(o slotSet) {
	for len(*s) < len(o) {
		*s = append(*s, 0)
	}
	for i, word := range o {
		(*s)[i] |= word
	}
}

// and returns the slots that are in both sets, as a new set.
func (s slotSet) and(o slotSet) slotSet {
	out := make(slotSet, min(len(s), len(o)))
	for i := range out {
		out[i] = s[i] & o[i]
	}
	return out
}

// minus returns the slots of s that are not in o, as a new set.
func (s slotSet) minus(o slotSet) slotSet {
	out := make(slotSet, len(s))
	for i := range out {
		if out[i] = s[i]; i < len(o) {
			out[i] &^= o[i]
		}
	}
	return out
}

// countCommon returns the number of slots that are in both sets.
func (s slotSet) countCommon(o slotSet) (n int) {
	for i := range min(len(s), len(o)) {
		n += bits.OnesCount64(s[i] & o[i])
	}
	return n
}

// empty reports whether the set has no slots.
func (s slotSet) empty() bool {
	for _, word := range s {
		if word != 0 {
			return false
		}
	}
	return true
}

// addTo adds a slot to one of several sets.
func addTo(sets map[string]slotSet, name string, slot int) {
	s := sets[name]
	s.add(slot)
	sets[name] = s
}

// removeFrom removes a slot from one of several sets. If the set then has no slots, removeFrom deletes the set.
func removeFrom(sets map[string]slotSet, name string, slot int) {
	if sets[name].remove(slot); sets[name].empty() {
		delete(sets, name)
	}
}
