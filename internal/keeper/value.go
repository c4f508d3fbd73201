package keeper

import (
	"errors"
	"fmt"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Target is a cgroup that has desired values.
type Target struct {
	Owner  string // container id or pod sandbox id
	Dir    string // the cgroup's directory, relative to the root of the cgroup tree (see cgroup.Path and cgroup.PodPath)
	Parent bool   // the cgroup has no tasks itself: the tasks are in cgroups below it, as for a pod
}

// Item is a desired value of a cgroup.
type Item struct {
	Target Target
	Value  lifecycle.Value
	// Requested is the original value as the runtime reported it; nil if the original is only in the kernel's file.
	// An empty list means the parent's list.
	Requested *lifecycle.Value
	// RuntimeMayHaveWritten means that the runtime may have written the agent's value to the file already. The
	// keeper then does not take the text in the file as the original.
	RuntimeMayHaveWritten bool
	// Restore means that the agent decides no value for the setting any more. The keeper restores the original, or
	// writes Value if neither Requested nor an original is known. Then it drops the setting.
	Restore bool
	// RequestUnknown has a meaning only with Restore: the agent does not know whether and which value was requested.
	// If the keeper does not have the original either, it leaves the value in the kernel, with ErrOriginalUnknown.
	RequestUnknown bool
}

// State is the result for a desired value.
type State int

// The states of a value.
const (
	Pending    State = iota // not in the kernel yet, since the cgroup does not exist
	Applied                 // written, read back and found in force
	Unchanged               // the kernel had the value already; nothing was written
	Refused                 // the kernel or a check of the keeper refused the value; Err has the reason
	Clipped                 // the parent cgroup allows only a part of the list, and the kernel uses this part
	Forgotten               // the setting has no desired value any more; nothing was written
	Superseded              // a newer value was recorded meanwhile, and the batch of the newer value writes it
	Ceded                   // the keeper leaves the text in the file and does not write it; Err has the reason
)

// stateNames has the name of each State, in the order of the constants.
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
	Kernel string // the text in the file, if the keeper read it
	Err    error  // the reason for the state; nil if there is none
}

// RuntimeOnly reports whether the kernel lets only the runtime write the value, because the
// cgroup belongs to the agent's own container (cgroup.RuntimeOnly).
func (o *Outcome) RuntimeOnly() bool { return o.State == Refused && cgroup.RuntimeOnly(o.Err) }

// ErrNotFreed is the reason why the keeper refuses to write a list: another cgroup of the same batch should have lost
// some CPUs or memory nodes of the list, and still has them.
var ErrNotFreed = errors.New("another cgroup still has these CPUs or memory nodes")

// IsCpusetFile reports whether the outcome is for a file of the controller cpuset. The keeper never leaves such a file
// to another program.
func (o Outcome) IsCpusetFile() bool {
	return Item{Value: o.Value}.settingKey().isCpusetFile()
}
