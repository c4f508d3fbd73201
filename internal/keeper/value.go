package keeper

import (
	"errors"
	"fmt"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Target is a cgroup whose values are kept.
type Target struct {
	Owner  string // container id or pod sandbox id
	Dir    string // relative, as cgroup.Path and cgroup.PodPath return it
	Parent bool   // a pod-level cgroup, whose tasks are in cgroups below it
}

// Item is a desired value of a cgroup.
type Item struct {
	Target Target
	Value  lifecycle.Value
	// Asked is the original value as reported; nil if only the kernel knows it. An empty list
	// means the parent's list.
	Asked *lifecycle.Value
	// Carried reports that the runtime may have written the agent's value already, so the text
	// in the file is not the original.
	Carried bool
	// Restore reports that no hook decides the value any more. The keeper restores its original,
	// or Value if neither Asked nor an original is known, and then drops the setting.
	Restore bool
	// RequestUnknown reports, with Restore, that the request is not known. If the keeper has no
	// original either, it leaves the value and reports that.
	RequestUnknown bool
}

// State is the result for a desired value.
type State int

// The states of a value.
const (
	Pending    State = iota // not in the kernel yet, since the cgroup does not exist
	Applied                 // written, read back and found in force
	Unchanged               // the kernel had it already; nothing was written
	Refused                 // the kernel or a check of the keeper refused it; Err has the reason
	Clipped                 // only the part that the parent cgroup allows is in force
	Forgotten               // its row was dropped; nothing was written
	Superseded              // a later value was recorded meanwhile, and its own batch writes it
	Ceded                   // the value of another program stays; Err has the reason
)

var stateNames = [...]string{"pending", "applied", "same", "refused", "clipped", "forgotten", "superseded", "left"}

// String returns the state's name as status prints it.
func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return fmt.Sprintf("State(%d)", int(s))
	}
	return stateNames[s]
}

// Outcome is the result for one value.
type Outcome struct {
	Target Target
	Value  lifecycle.Value
	State  State
	Kernel string // the kernel's text, if it was read
	Err    error
}

// RuntimeOnly reports whether the kernel lets only the runtime write the value, because the
// cgroup is that of the agent's own container (cgroup.RuntimeOnly).
func (o *Outcome) RuntimeOnly() bool { return o.State == Refused && cgroup.RuntimeOnly(o.Err) }

// ErrNotFreed is the reason for refusing CPUs that another cgroup of the same batch still has,
// although it should have lost them. A cgroup gets a CPU only when all other cgroups have lost
// it.
var ErrNotFreed = errors.New("another cgroup still has these CPUs or memory nodes")

// KeepsApart reports whether the outcome is for a file that the keeper never leaves to another
// program.
func (o Outcome) KeepsApart() bool {
	return Item{Value: o.Value}.settingKey().keepsApart()
}
