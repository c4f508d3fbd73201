package hook

import (
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// SchedulingClass gives the processes of containers the scheduling policy and the I/O priority of
// their scheduling class, which the placement policy chooses: the one that the pod names, or that of
// their balloon's type.
type SchedulingClass struct{}

// SchedulingClassOptions tunes the hook of the scheduling classes of balloon types
// (placement.balloons.schedulingClasses).
type SchedulingClassOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled" default:"true"`
}

// AllOn is the hook with all that can be switched on.
func (SchedulingClassOptions) AllOn() Hook { return SchedulingClass{} }

// Make makes the hook for a node.
func (SchedulingClassOptions) Make(_ Node, _ *Options) (Hook, error) { return SchedulingClass{}, nil }

// AfterOthers marks the hook, so that it finds what the annotations of a pod set.
func (SchedulingClass) AfterOthers() {}

// Info describes the hook.
func (SchedulingClass) Info() Info {
	return Info{
		Name:    "schedulingClass",
		About:   "scheduling policy and I/O priority of a container's processes, by the scheduling class of its balloon's type, or that the pod names",
		Stages:  []lifecycle.Kind{lifecycle.CreateContainer},
		Reads:   []string{intent.NRISchedulingClass},
		Sets:    []lifecycle.Field{lifecycle.ProcessIO, lifecycle.ProcessSched},
		Compose: "runs after the hooks scheduler and ioPriority; what these set is not changed",
		Differs: []string{
			"the configuration grants a class, so hooks.scheduler.realtime and hooks.ioPriority.realtime do not concern it",
			"set on the processes themselves where no request can hold it: docs/parity.md says when",
			"a running container keeps the class that it was created with",
		},
	}
}

// Propose sets what the container's class says and no other hook set.
func (SchedulingClass) Propose(in *Input, out *Output) {
	class := &in.Scheduling
	if in.Container == "" || class.Name == "" {
		return
	}
	why := lifecycle.Reason{Hook: "schedulingClass", Source: class.From, Text: "scheduling class " + class.Name}
	set := func(f lifecycle.Field) bool {
		return slices.ContainsFunc(out.Values, func(v lifecycle.Value) bool { return v.Field == f })
	}
	if class.Scheduler != "" && !set(lifecycle.ProcessSched) {
		out.text(in, lifecycle.ProcessSched, "", class.Scheduler, why)
	}
	if class.IOPriority != "" && !set(lifecycle.ProcessIO) {
		out.text(in, lifecycle.ProcessIO, "", class.IOPriority, why)
	}
}
