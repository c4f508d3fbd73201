package hook

import (
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// IOPriority gives the processes of containers the I/O priority their pod asks for.
// Keys and values: NRI 0.12, plugin device-injector.
type IOPriority struct {
	// Realtime lets pods have IOPRIO_CLASS_RT.
	Realtime bool
}

// IOPriorityOptions tunes the hook of I/O priorities.
type IOPriorityOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// Realtime lets pods have the class IOPRIO_CLASS_RT, which comes before all
	// others at a disk.
	Realtime bool `json:"realtime"`
}

// AllOn is the hook with all that can be switched on.
func (IOPriorityOptions) AllOn() Hook { return IOPriority{Realtime: true} }

// Make makes the hook for a node.
func (o IOPriorityOptions) Make(_ Node, _ *Options) (Hook, error) {
	return IOPriority{Realtime: o.Realtime}, nil
}

// Info describes the hook.
func (IOPriority) Info() Info {
	return Info{
		Name:    "ioPriority",
		About:   "class and level with which the kernel serves the disk accesses of a container's processes",
		Stages:  []lifecycle.Kind{lifecycle.CreateContainer},
		Reads:   []string{intent.NRIIOPriority},
		Sets:    []lifecycle.Field{lifecycle.ProcessIO},
		Compose: "the only hook that sets it",
		Differs: []string{
			"IOPRIO_CLASS_RT is refused unless hooks.ioPriority.realtime allows it",
			"for an unknown class the agent reports an error and sets nothing; the plugin also sets nothing, but logs that it set BE",
			"the kernel applies it only if the disk's scheduler supports it (BFQ, mq-deadline); the agent does not check that",
			"set on the processes themselves where no request can hold it: docs/parity.md says when",
			"a running container keeps the priority that it was created with",
		},
	}
}

// Propose sets a container's priority.
func (h IOPriority) Propose(in *Input, out *Output) {
	asked, why, ok := scoped(in, in.Intent.IOPriority, "ioPriority")
	if !ok {
		return
	}
	if asked.V.Class == "IOPRIO_CLASS_RT" && !h.Realtime {
		out.decline(asked.Key, asked.V.Text(), "ioPriority: hooks.ioPriority.realtime does not allow this class")
		return
	}
	out.text(in, lifecycle.ProcessIO, "", asked.V.Text(), why)
}
