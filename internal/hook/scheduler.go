package hook

import (
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Scheduler gives the processes of containers the scheduling policy their pod asks
// for. Keys and values: NRI 0.12, plugin device-injector.
type Scheduler struct {
	// Realtime lets pods have SCHED_FIFO and SCHED_RR. Deadline lets pods have SCHED_DEADLINE.
	Realtime, Deadline bool
}

// SchedulerOptions tunes the hook of scheduling policies.
type SchedulerOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// Realtime lets pods have SCHED_FIFO and SCHED_RR, which come before all other
	// threads of a CPU.
	Realtime bool `json:"realtime"`
	// Deadline lets pods have SCHED_DEADLINE, which comes before those.
	Deadline bool `json:"deadline"`
}

// AllOn is the hook with all that can be switched on.
func (SchedulerOptions) AllOn() Hook { return Scheduler{Realtime: true, Deadline: true} }

// Make makes the hook for a node.
func (o SchedulerOptions) Make(_ Node, _ *Options) (Hook, error) {
	return Scheduler{Realtime: o.Realtime, Deadline: o.Deadline}, nil
}

// Info describes the hook.
func (Scheduler) Info() Info {
	return Info{
		Name:    "scheduler",
		About:   "policy, nice value, priority and deadlines by which the kernel schedules a container's processes",
		Stages:  []lifecycle.Kind{lifecycle.CreateContainer},
		Reads:   []string{intent.NRIScheduler},
		Sets:    []lifecycle.Field{lifecycle.ProcessSched},
		Compose: "the only hook that sets it",
		Differs: []string{
			"SCHED_FIFO and SCHED_RR are refused unless hooks.scheduler.realtime allows them, SCHED_DEADLINE unless hooks.scheduler.deadline does",
			"for an unknown policy the agent reports an error and sets nothing; the plugin sets SCHED_NONE",
			"numbers that the kernel refuses are reported, and the creation does not fail",
			"the flags SCHED_FLAG_UTIL_CLAMP_MIN and _MAX are refused: NRI has no field for the clamps",
			"set on the processes themselves where no request can hold it: docs/parity.md says when",
			"a running container keeps the policy that it was created with",
		},
	}
}

// Propose sets a container's policy.
func (h Scheduler) Propose(in *Input, out *Output) {
	asked, why, ok := scoped(in, in.Intent.Scheduler, "scheduler")
	if !ok {
		return
	}
	var lacks string
	switch asked.V.Policy {
	case "SCHED_FIFO", "SCHED_RR":
		if !h.Realtime {
			lacks = "hooks.scheduler.realtime"
		}
	case "SCHED_DEADLINE":
		if !h.Deadline {
			lacks = "hooks.scheduler.deadline"
		}
	}
	if lacks != "" {
		out.decline(asked.Key, asked.V.Text(), "scheduler: "+lacks+" does not allow this policy")
		return
	}
	out.text(in, lifecycle.ProcessSched, "", asked.V.Text(), why)
}
