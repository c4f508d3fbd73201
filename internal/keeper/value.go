package keeper

import (
	"errors"
	"fmt"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Target is a cgroup whose values are kept.
type Target struct {
	Owner  string // container id or pod sandbox id
	Dir    string // relative, as cgroup.Path and cgroup.PodPath return it
	Parent bool   // a pod-level cgroup: its tasks are in cgroups below it
}

// Item is a value wanted in a cgroup.
type Item struct {
	Target Target
	Value  lifecycle.Value
	// Asked is what would be there without us, where somebody reported it; nil where
	// only the kernel knows. An empty list is what the cgroup above has.
	Asked *lifecycle.Value
	// Carried says that our value may be there already, not by a write of this
	// keeper: what is found is not the original.
	Carried bool
	// Back says that nobody wants anything there any more: what would be there
	// without us is given back, Value where neither Asked nor an original is
	// known, and then the setting is no longer kept.
	Back bool
	// Unknown says, with Back, that nobody knows what would be there: where the
	// keeper has not found it there before, the value stays and is reported.
	Unknown bool
}

// State says what became of a desired value.
type State int

// The states of a value.
const (
	Pending    State = iota // desired; not in the kernel yet, as the cgroup does not exist
	Applied                 // written, read back and found in force
	Same                    // the kernel had it already; nothing was written
	Refused                 // the kernel or a check of ours refused it; Err says why
	Clipped                 // only what the parent cgroup allows of it is in force
	Forgotten               // its row went; nothing was written
	Superseded              // a later value was recorded meanwhile and will be written by who brought it
	Ceded                   // another program's value is there and stays; Err says why
)

var stateNames = [...]string{"pending", "applied", "same", "refused", "clipped", "forgotten", "superseded", "left"}

// String returns the state's name as status prints it.
func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return fmt.Sprintf("State(%d)", int(s))
	}
	return stateNames[s]
}

// Outcome is what became of one value.
type Outcome struct {
	Target Target
	Value  lifecycle.Value
	State  State
	Kernel string // what the kernel now says, where it was asked
	Err    error
}

// ErrHeld refuses CPUs that another cgroup of the same batch was to give up and
// did not: what is taken from one is not given to another before it is free.
var ErrHeld = errors.New("another cgroup has not given these up")

// KeepsApart reports whether the outcome is that of a file which is never left to
// another program.
func (o Outcome) KeepsApart() bool {
	return Item{Value: o.Value}.kind().keepsApart()
}
