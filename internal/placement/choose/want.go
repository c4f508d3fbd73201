package choose

import (
	"fmt"

	"github.com/trimtab/trimtab/internal/topology"
)

// Cores says how the threads of one core may be divided.
type Cores uint8

// The ways to use cores.
const (
	// AnyThread takes whole cores as long as they fit and then single threads, from split cores
	// if there are any.
	AnyThread Cores = iota
	// WholeCores takes only whole cores. It refuses a count that is no sum of whole cores.
	WholeCores
	// OneThread takes one thread of each core and leaves its siblings idle. The answer lists the
	// siblings, so that the caller can keep other containers off them.
	OneThread
	// SpreadThreads takes one thread of as many cores as possible before it takes a second one
	// of any. Others may use the siblings.
	SpreadThreads
	// PreferWhole takes whole cores if there are enough of them. Otherwise, or for less than a
	// core, it is AnyThread.
	PreferWhole
)

// Preference narrows the CPUs to choose from, if enough are left.
type Preference struct {
	Name  string // what is near or avoided, for users
	CPUs  topology.Set
	Avoid bool // avoid these CPUs instead of preferring them
	// Partly: if there are too few, as many of them as possible are preferred, as long as that
	// needs no more dies and NUMA nodes.
	Partly bool
}

// Left is the number of CPUs that other containers need on a NUMA node and cannot get elsewhere.
type Left struct {
	Node int          // its id
	CPUs topology.Set // the CPUs that they may use
	N    int
}

// Want asks for CPUs. The zero value of each field is a good default.
type Want struct {
	// N is the number of CPUs; 0 or less chooses none.
	N int
	// From are the CPUs that may be taken.
	From topology.Set
	// Cores says how the threads of a core may be divided. A core is whole if all its online
	// threads are in From.
	Cores Cores
	// UsedWith are CPUs that the chosen ones will be used together with. Groups with more of
	// them are preferred; only preferences come before that.
	UsedWith topology.Set
	// Shared are CPUs on which containers run that can also run elsewhere. Of otherwise equal
	// choices, the choice with the fewest Shared CPUs wins.
	Shared topology.Set
	// Reserve keeps CPUs free for others, if enough are left. It has no effect with Spread.
	Reserve []Left
	// Memory is the number of bytes that should be near the CPUs. MemoryLeft is the free memory
	// of each node, in the machine's order; nil if unknown.
	Memory     uint64
	MemoryLeft []uint64
	// Efficient prefers efficient cores, also if there are too few of them.
	Efficient bool
	// PreferEmptiest prefers the group with the most CPUs left over to the one with the least.
	// It spreads load over the machine instead of packing it.
	PreferEmptiest bool
	// Spread divides the count over all groups of these levels as evenly as possible, instead
	// of filling as few as possible.
	Spread []topology.Level
	// Even requires the same number from each group of the first level of Spread that has CPUs
	// of From.
	Even bool
	// Preferences, the most important first.
	Preferences []Preference
}

// Chosen is an answer.
type Chosen struct {
	CPUs topology.Set
	// Idle are siblings of the chosen threads that stay idle (OneThread).
	Idle topology.Set
	// Why lists the reasons, in the order of the decisions.
	Why []Reason
}

// ShortError refuses a request: there are too few CPUs to choose from.
type ShortError struct {
	Want, Have int
	What       string // what is counted, such as "CPUs in whole cores"
}

// Error has both numbers.
func (e *ShortError) Error() string {
	return fmt.Sprintf("%d CPUs are wanted, and there are %d %s", e.Want, e.Have, e.What)
}

// ShapeError refuses a count that cannot be made in the requested way, whatever is free.
type ShapeError struct {
	Want int
	What string
}

// Error says why.
func (e *ShapeError) Error() string { return fmt.Sprintf("%d CPUs %s", e.Want, e.What) }
