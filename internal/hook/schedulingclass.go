package hook

import (
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// SchedulingClassOptions are the options of the hook that gives the processes of containers the scheduling policy and
// the I/O priority of their scheduling class. The pod names the class, or the configuration gives it to the pod
// (placement.balloons.schedulingClasses, placement.topologyAware.schedulingClasses).
type SchedulingClassOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled" default:"true"`
}

// AfterOthers marks the hook, so that the engine calls it after the hooks that read the pod's annotations.
func (SchedulingClassOptions) AfterOthers() {}

// Info describes the hook.
func (SchedulingClassOptions) Info() Info {
	return Info{
		Name:    "schedulingClass",
		About:   "scheduling policy and I/O priority of a container's processes, by the scheduling class that the pod names, or that the configuration gives to its balloon type, namespace or QoS class",
		Stages:  []lifecycle.Kind{lifecycle.CreateContainer},
		Reads:   []string{intent.NRISchedulingClass},
		Sets:    []lifecycle.Field{lifecycle.ProcessIO, lifecycle.ProcessSched},
		Compose: "runs after the hooks scheduler and ioPriority, and does not change their values",
		Differs: []string{
			"hooks.scheduler.realtime and hooks.ioPriority.realtime do not apply to classes, because the administrator defines them",
			"if the requests of the attachment have no field for the policy or priority, the agent sets it on the running processes (docs/parity.md)",
			"a running container keeps the class that it was created with",
		},
	}
}

// Propose sets the scheduling policy and I/O priority of the container's scheduling class. It leaves out a value that
// another hook has set.
func (SchedulingClassOptions) Propose(in *Input, out *Output) {
	class := &in.Scheduling
	if in.Container == "" || class.Name == "" {
		return
	}
	why := lifecycle.Reason{Hook: "schedulingClass", Source: class.From, Text: "scheduling class " + class.Name}
	if class.Scheduler != "" && !out.hasProposal(lifecycle.ProcessSched, "") {
		out.setText(in, lifecycle.ProcessSched, "", class.Scheduler, why)
	}
	if class.IOPriority != "" && !out.hasProposal(lifecycle.ProcessIO, "") {
		out.setText(in, lifecycle.ProcessIO, "", class.IOPriority, why)
	}
}
