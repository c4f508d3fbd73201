package hook

import (
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// SchedulerOptions are the options of the hook that gives the processes of containers the scheduling policy that their
// pod requests. The keys and values are those of NRI 0.12, plugin device-injector.
type SchedulerOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// Realtime lets pods have SCHED_FIFO and SCHED_RR, whose threads run before the
	// normal threads of a CPU.
	Realtime bool `json:"realtime"`
	// Deadline lets pods have SCHED_DEADLINE, whose threads run before real-time threads.
	Deadline bool `json:"deadline"`
}

// Info describes the hook.
func (SchedulerOptions) Info() Info {
	return Info{
		Name:    "scheduler",
		About:   "policy, nice value, priority and deadlines by which the kernel schedules a container's processes",
		Stages:  []lifecycle.Kind{lifecycle.CreateContainer},
		Reads:   []string{intent.NRIScheduler},
		Sets:    []lifecycle.Field{lifecycle.ProcessSched},
		Compose: "the hook schedulingClass sets this field only if this hook does not",
		Differs: []string{
			"SCHED_FIFO and SCHED_RR need hooks.scheduler.realtime, and SCHED_DEADLINE needs hooks.scheduler.deadline; without these options, the agent refuses the policies",
			"for an unknown policy the agent reports an error and sets nothing; the plugin sets SCHED_NONE",
			"numbers that the kernel refuses are reported, and the creation does not fail",
			"the flags SCHED_FLAG_UTIL_CLAMP_MIN and SCHED_FLAG_UTIL_CLAMP_MAX are refused: NRI has no field for the clamps",
			"if the requests of the attachment have no field for the policy, the agent sets the policy of the running processes (docs/parity.md)",
			"a running container keeps the policy that it was created with",
		},
	}
}

// Propose sets the scheduling policy of a container's processes.
func (h SchedulerOptions) Propose(in *Input, out *Output) {
	asked, why, ok := scopedRequest(in, in.Intent.Scheduler, "scheduler")
	if !ok {
		return
	}
	const notAllowed = " does not allow this policy"
	switch policy := asked.V.Policy; {
	case (policy == "SCHED_FIFO" || policy == "SCHED_RR") && !h.Realtime:
		out.decline(asked.Key, asked.V.Text(), "scheduler: hooks.scheduler.realtime"+notAllowed)
	case policy == "SCHED_DEADLINE" && !h.Deadline:
		out.decline(asked.Key, asked.V.Text(), "scheduler: hooks.scheduler.deadline"+notAllowed)
	default:
		out.setText(in, lifecycle.ProcessSched, "", asked.V.Text(), why)
	}
}
