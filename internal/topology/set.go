package topology

import (
	"fmt"
	"iter"
	"math/bits"
	"strconv"
	"strings"
)

// MaxCPUs is the largest number of members of a Set.
const MaxCPUs = 1024

// MaxNodes is the largest number of NUMA nodes of a machine.
const MaxNodes = 64

// MaxID is the largest kernel id of a CPU or NUMA node that is accepted.
const MaxID = 4095

// Set is a set of CPUs, by their index in Machine.CPUs, or a set of NUMA nodes, by id. Sets can be compared with ==.
// The zero Set is empty.
type Set [MaxCPUs / 64]uint64

// SetOf returns the set of the given members.
func SetOf(members ...int) Set {
	var s Set
	for _, m := range members {
		s.Add(m)
	}
	return s
}

// Add puts i, in 0..MaxCPUs-1, into the set.
func (s *Set) Add(i int) { s[i>>6] |= 1 << (i & 63) }

// Has reports whether i is in the set.
func (s Set) Has(i int) bool { return i >= 0 && i < MaxCPUs && s[i>>6]&(1<<(i&63)) != 0 }

// Union returns the members that are in at least one of the sets.
func (s Set) Union(o Set) Set {
	for i := range s {
		s[i] |= o[i]
	}
	return s
}

// Minus returns the members of s that are not in o.
func (s Set) Minus(o Set) Set {
	for i := range s {
		s[i] &^= o[i]
	}
	return s
}

// And returns the members that are in both sets.
func (s Set) And(o Set) Set {
	for i := range s {
		s[i] &= o[i]
	}
	return s
}

// Empty reports whether the set has no member.
func (s Set) Empty() bool { return s == Set{} }

// Contains reports whether every member of o is in s.
func (s Set) Contains(o Set) bool { return o.Minus(s).Empty() }

// Len returns the number of members.
func (s Set) Len() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// Members returns the members in ascending order.
func (s Set) Members() []int {
	out := make([]int, 0, s.Len())
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			out = append(out, i<<6+bits.TrailingZeros64(w))
		}
	}
	return out
}

// First returns the lowest member; -1 if the set is empty.
func (s Set) First() int {
	for i, w := range s {
		if w != 0 {
			return i<<6 + bits.TrailingZeros64(w)
		}
	}
	return -1
}

// All iterates over the members in ascending order, without a slice.
func (s Set) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, w := range s {
			for ; w != 0; w &= w - 1 {
				if !yield(i<<6 + bits.TrailingZeros64(w)) {
					return
				}
			}
		}
	}
}

// ParseList parses a kernel list such as "0-3,8,10-11" into ascending ids without repeats.
// Empty text is the empty list. It returns an error for strides such as "0-8:2/4", because no runtime or scheduler
// writes them.
func ParseList(text string) ([]int, error) {
	seen, err := ParseBits(text)
	if err != nil {
		return nil, err
	}
	return seen.Members(), nil
}

// Bits is a bit set of kernel ids of CPUs or NUMA nodes, from 0 to MaxID.
type Bits [(MaxID + 1) / 64]uint64

// Members returns the ids of the set bits in ascending order; nil if there is none.
func (b *Bits) Members() []int {
	n := 0
	for _, w := range b {
		n += bits.OnesCount64(w)
	}
	if n == 0 {
		return nil
	}
	ids := make([]int, 0, n)
	for i, w := range b {
		for ; w != 0; w &= w - 1 {
			ids = append(ids, i<<6+bits.TrailingZeros64(w))
		}
	}
	return ids
}

// add sets the bits from lo to hi. It sets whole words, so that parsing a list of many wide ranges does not take long.
func (b *Bits) add(lo, hi int) {
	first, last := lo>>6, hi>>6
	from, to := ^uint64(0)<<(lo&63), ^uint64(0)>>(63-hi&63)
	if first == last {
		b[first] |= from & to
		return
	}
	b[first] |= from
	for i := first + 1; i < last; i++ {
		b[i] = ^uint64(0)
	}
	b[last] |= to
}

// ParseBits parses a kernel list such as "0-3,8,10-11" into a bit set. It returns an error for the same lists as
// ParseList. The time is linear in the length of the text.
func ParseBits(text string) (Bits, error) {
	var seen Bits
	text = strings.TrimSpace(text)
	if text == "" {
		return seen, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		lo, hi, err := parseRange(strings.TrimSpace(part))
		if err != nil {
			return Bits{}, fmt.Errorf("list %q: %w", shorten(text), err)
		}
		seen.add(lo, hi)
	}
	return seen, nil
}

// parseRange parses one element of a kernel list: an id, or a range of ids such as "0-3".
func parseRange(part string) (lo, hi int, err error) {
	if lo, hi, ok := parseShortRange(part); ok {
		return lo, hi, nil
	}
	a, b, isRange := strings.Cut(part, "-")
	if lo, err = parseID(a); err != nil {
		return 0, 0, err
	}
	if !isRange {
		return lo, lo, nil
	}
	if hi, err = parseID(b); err != nil {
		return 0, 0, err
	}
	if hi < lo {
		return 0, 0, fmt.Errorf("range %s-%s: the end is below the start", a, b)
	}
	return lo, hi, nil
}

// parseShortRange parses an id or a range whose ids have at most four digits. The result ok is false for all other texts,
// which parseRange then parses itself.
func parseShortRange(part string) (lo, hi int, ok bool) {
	ids, digits, at := [2]int{}, 0, 0
	for i := 0; i < len(part); i++ {
		switch c := part[i]; {
		case '0' <= c && c <= '9' && digits < 4:
			ids[at] = ids[at]*10 + int(c-'0')
			digits++
		case c == '-' && at == 0 && digits > 0:
			at, digits = 1, 0
		default:
			return 0, 0, false
		}
	}
	if at == 0 {
		ids[1] = ids[0]
	}
	return ids[0], ids[1], digits > 0 && ids[0] <= ids[1] && ids[1] <= MaxID
}

// parseID parses a kernel id.
func parseID(s string) (int, error) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, fmt.Errorf("%q is not a number", shorten(s))
	}
	n, err := strconv.Atoi(s)
	if err != nil || n > MaxID {
		return 0, fmt.Errorf("%s is above %d", shorten(s), MaxID)
	}
	return n, nil
}

// FormatList formats ascending ids as a kernel list.
func FormatList(ids []int) string {
	var b strings.Builder
	for i := 0; i < len(ids); {
		j := i
		for j+1 < len(ids) && ids[j+1] == ids[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(ids[i]))
		if j > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(ids[j]))
		}
		i = j + 1
	}
	return b.String()
}

// shorten limits untrusted text in a message to 64 bytes.
func shorten(s string) string {
	if len(s) > 64 {
		return s[:61] + "..."
	}
	return s
}
