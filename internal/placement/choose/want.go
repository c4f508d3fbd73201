package choose

import (
	"fmt"

	"github.com/trimtab/trimtab/internal/topology"
)

// Cores says how hardware threads of one core may be divided.
type Cores uint8

// The uses of cores.
const (
	// AnyThread takes whole cores as long as they fit and then single threads,
	// from cores already broken where there are any.
	AnyThread Cores = iota
	// WholeCores takes nothing but whole cores; a count that is no sum of whole
	// cores is refused.
	WholeCores
	// OneThread takes one thread of each core and leaves its siblings idle. The
	// siblings are reported, so that the caller can keep others off them.
	OneThread
	// SpreadThreads takes one thread of as many cores as possible before it
	// takes a second of any. Siblings are left to others.
	SpreadThreads
	// PreferWhole keeps to whole cores where there are enough of them, and is
	// AnyThread where there are not, or where less than a core is wanted.
	PreferWhole
)

// Preference narrows what is chosen from, where enough is left.
type Preference struct {
	Name  string // for people: what is near or avoided
	CPUs  topology.Set
	Avoid bool // rather not these, instead of rather these
	// Partly: where these are too few, as many of them as possible are preferred, as
	// far as that takes no more dies and NUMA nodes.
	Partly bool
}

// Left is what others need of a NUMA node and can have nowhere else.
type Left struct {
	Node int          // its id
	CPUs topology.Set // of these
	N    int
}

// Want is a question for CPUs. The zero value of each field is a good default.
type Want struct {
	// N is how many CPUs are wanted; 0 or less is answered with none.
	N int
	// From are the CPUs that may be taken.
	From topology.Set
	// Cores says how the threads of a core may be divided. A core is whole
	// where all its online threads are in From.
	Cores Cores
	// Beside are CPUs the chosen ones will be used together with: groups that
	// have more of them are preferred to anything but preferences.
	UsedWith topology.Set
	// Shared are CPUs that others run on who can run elsewhere: of choices that are
	// equal for the one who asks, the one with the fewest of them is taken.
	Shared topology.Set
	// Leave is left to others where enough is left beside. It does not count with
	// Spread.
	Reserve []Left
	// Memory is how many bytes are to be near the CPUs, MemoryLeft how many are left of
	// each node of the machine, in its order; nil where that is not known.
	Memory     uint64
	MemoryLeft []uint64
	// Efficient prefers efficient cores to others, also where there are too few for all.
	Efficient bool
	// Roomy prefers the group with the most left over to the one with the
	// least: it spreads load over the machine instead of packing it.
	PreferEmptiest bool
	// Spread divides the count over all groups of these levels as evenly as
	// they allow, instead of filling as few as possible.
	Spread []topology.Level
	// Even demands that each group of the first level of Spread that From
	// reaches gives equally many.
	Even bool
	// Preferences, the most important first.
	Preferences []Preference
}

// Chosen is an answer.
type Chosen struct {
	CPUs topology.Set
	// Idle are siblings of the chosen threads that stay idle (OneThread).
	Idle topology.Set
	// Why lists what decided, in the order it was asked.
	Why []Reason
}

// ShortError refuses a question: there is not enough to choose from.
type ShortError struct {
	Want, Have int
	What       string // what is counted, such as "CPUs in whole cores"
}

// Error says both numbers.
func (e *ShortError) Error() string {
	return fmt.Sprintf("%d CPUs are wanted, and there are %d %s", e.Want, e.Have, e.What)
}

// ShapeError refuses a count that cannot be made in the way asked for,
// whatever is free.
type ShapeError struct {
	Want int
	What string
}

// Error says why.
func (e *ShapeError) Error() string { return fmt.Sprintf("%d CPUs %s", e.Want, e.What) }
