package hook

import (
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// IOPriorityOptions are the options of the hook that gives the processes of containers the I/O priority that their pod
// requests. The keys and values are those of NRI 0.12, plugin device-injector.
type IOPriorityOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// Realtime lets pods have the class IOPRIO_CLASS_RT, which a disk serves before
	// all other classes.
	Realtime bool `json:"realtime"`
}

// Info describes the hook.
func (IOPriorityOptions) Info() Info {
	return Info{
		Name:    "ioPriority",
		About:   "class and level with which the kernel serves the disk accesses of a container's processes",
		Stages:  []lifecycle.Kind{lifecycle.CreateContainer},
		Reads:   []string{intent.NRIIOPriority},
		Sets:    []lifecycle.Field{lifecycle.ProcessIO},
		Compose: "the hook schedulingClass sets this field only if this hook does not",
		Differs: []string{
			"IOPRIO_CLASS_RT is refused unless hooks.ioPriority.realtime allows it",
			"for an unknown class the agent reports an error and sets nothing; the plugin also sets nothing, but logs that it set BE",
			"the kernel applies the priority only if the disk's scheduler supports priorities (BFQ, mq-deadline); the agent does not check this",
			"if the requests of the attachment have no field for the priority, the agent sets the priority of the running processes (docs/parity.md)",
			"a running container keeps the priority that it was created with",
		},
	}
}

// Propose sets the I/O priority of a container's processes.
func (h IOPriorityOptions) Propose(in *Input, out *Output) {
	asked, why, ok := scopedRequest(in, in.Intent.IOPriority, "ioPriority")
	if !ok {
		return
	}
	if asked.V.Class == "IOPRIO_CLASS_RT" && !h.Realtime {
		out.decline(asked.Key, asked.V.Text(), "ioPriority: hooks.ioPriority.realtime does not allow this class")
		return
	}
	out.setText(in, lifecycle.ProcessIO, "", asked.V.Text(), why)
}
