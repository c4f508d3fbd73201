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
	Dir    string // the cgroup's directory, relative to the root, as cgroup.Path and cgroup.PodPath return it
	Parent bool   // the cgroup's tasks are in cgroups below it, as for a pod
}

// Item is a desired value of a cgroup.
type Item struct {
	Target Target
	Value  lifecycle.Value
	// Requested is the original value as the runtime reported it; nil if only the kernel knows the original. An
	// empty list means the parent's list.
	Requested *lifecycle.Value
	// RuntimeMayHaveWritten means that the runtime may have written the agent's value already. The keeper then does
	// not take the text in the file for the original.
	RuntimeMayHaveWritten bool
	// Restore means that no hook decides the value any more. The keeper restores the original, or writes Value if
	// neither Requested nor an original is known. Then it drops the setting.
	Restore bool
	// RequestUnknown means, together with Restore, that the request is not known. If the keeper has no original
	// either, it leaves the value in the kernel, with ErrOriginalUnknown.
	RequestUnknown bool
}

// State is the result for a desired value.
type State int

// The states of a value.
const (
	Pending    State = iota // not in the kernel yet, since the cgroup does not exist
	Applied                 // written, read back and found in force
	Unchanged               // the kernel had the value already; nothing was written
	Refused                 // the kernel or a check of the keeper refused it; Err has the reason
	Clipped                 // only the part that the parent cgroup allows is in force
	Forgotten               // the value's row was dropped; nothing was written
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

// ErrNotFreed is the reason why the keeper refuses a list: another cgroup of the same batch should have lost some of
// these CPUs or memory nodes, and still has them.
var ErrNotFreed = errors.New("another cgroup still has these CPUs or memory nodes")

// IsCpusetFile reports whether the outcome is for a file of the controller cpuset. The keeper never leaves such a file
// to another program.
func (o Outcome) IsCpusetFile() bool {
	return Item{Value: o.Value}.settingKey().isCpusetFile()
}
