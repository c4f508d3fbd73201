package choose

import (
	"fmt"

	"github.com/trimtab/trimtab/internal/topology"
)

// CoreUse says whether a choice takes whole cores or single threads of cores.
type CoreUse uint8

// The ways to use cores.
const (
	// AnyThread takes whole cores until fewer CPUs are missing than a core has threads. Then it takes single threads,
	// if possible of cores of which other threads are in use.
	AnyThread CoreUse = iota
	// WholeCores takes only whole cores. If no set of whole cores has exactly the requested number of CPUs, Choose
	// returns an error.
	WholeCores
	// OneThread takes one thread of each core and leaves the sibling threads idle. The answer lists the
	// siblings, so that the caller can keep other containers off them.
	OneThread
	// SpreadThreads takes one thread of as many cores as possible before it takes a second thread of any
	// core. Other containers may use the siblings.
	SpreadThreads
	// PreferWhole takes only CPUs of whole cores if whole cores have enough CPUs; it can take only some threads of the
	// last core. If they do not have enough CPUs, or if the request is for less than one core, PreferWhole does the
	// same as AnyThread.
	PreferWhole
)

// Preference narrows the CPUs to choose from, if enough are left.
type Preference struct {
	Name  string // how a message names the CPUs after "near", or after "away from" if Avoid is set
	CPUs  topology.Set
	Avoid bool // avoid these CPUs instead of preferring them
	// Partly matters if too few of the preferred CPUs are free. If it is set, as many preferred CPUs as possible are
	// chosen, but not at the price of more dies or more NUMA nodes. If it is not set, the preference is skipped.
	Partly bool
}

// NodeReserve is the number of CPUs that other containers need on a NUMA node and cannot get elsewhere.
type NodeReserve struct {
	Node int          // the id of the NUMA node
	CPUs topology.Set // the CPUs of the node that these containers may use
	N    int
}

// Request is a request for CPUs. The zero value of each optional field is a good default.
type Request struct {
	// N is the number of CPUs; 0 or less means none.
	N int
	// From are the CPUs that may be taken.
	From topology.Set
	// Cores says whether the choice takes whole cores or single threads of cores. A core is whole if all its online
	// threads are in From.
	Cores CoreUse
	// UsedWith are CPUs that the caller has already, and will use together with the chosen CPUs. The choice prefers
	// sockets, NUMA nodes, caches and cores with many of the CPUs in UsedWith. This is less important than the
	// preferences in the field Preferences, and more important than everything else.
	UsedWith topology.Set
	// Shared are CPUs of containers that can also run on other CPUs. Of otherwise equal choices, the choice
	// with the fewest Shared CPUs wins.
	Shared topology.Set
	// Reserve has the numbers of CPUs to leave free for other containers, if possible. It has no effect with
	// Spread.
	Reserve []NodeReserve
	// Memory is the number of bytes that should be near the CPUs. FreeMemory is the free memory of each node in bytes,
	// in the order of Machine.Nodes; nil if unknown.
	Memory     uint64
	FreeMemory []uint64
	// Efficient prefers efficient cores, even if there are too few of them.
	Efficient bool
	// PreferEmptiest prefers groups with many free CPUs to groups with few free CPUs. This spreads the load over the
	// machine.
	PreferEmptiest bool
	// Spread lists levels of the machine, such as NUMA nodes. The count is divided as evenly as possible over the
	// groups of the first level, then over the groups of the next level inside each of them, and so on. If Spread is
	// empty, the CPUs are taken from as few groups as possible.
	Spread []topology.Level
	// Even requires the same number of CPUs from each group that has CPUs of From. The groups are those of
	// the first level of Spread.
	Even bool
	// Preferences has the preferences, the most important first.
	Preferences []Preference
}

// Choice is the answer to a Request.
type Choice struct {
	CPUs topology.Set
	// Idle are siblings of the chosen threads that stay idle (OneThread).
	Idle topology.Set
	// Why lists the reasons, in the order of the decisions.
	Why []Reason
}

// TooFewCPUsError is the error for a request if there are too few CPUs to choose from.
type TooFewCPUsError struct {
	Want, Available int
	What            string // which CPUs are available: a phrase that follows "there are N", such as "to choose from"
}

// Error has the requested and the available number of CPUs.
func (e *TooFewCPUsError) Error() string {
	return fmt.Sprintf("%d CPUs are requested, and there are %d %s", e.Want, e.Available, e.What)
}

// InvalidCountError is the error for a number of CPUs that is impossible with the other fields of the
// request.
type InvalidCountError struct {
	Want int    // the requested number of CPUs
	What string // why the count is invalid: a clause that follows "N CPUs"
}

// Error says why the count is invalid.
func (e *InvalidCountError) Error() string { return fmt.Sprintf("%d CPUs %s", e.Want, e.What) }
