package route

import (
	"errors"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// The values of the table: one that the runtime stores, one that only the kernel has, one that
// only a creation sets.
var (
	cpus    = lifecycle.Value{Field: lifecycle.CPUSetCPUs, Text: "0-3"}
	rdt     = lifecycle.Value{Field: lifecycle.RDTSchemata, Text: "MB:0=50"}
	env     = lifecycle.Value{Field: lifecycle.Env, Key: "A", Text: "1"}
	removed = lifecycle.Value{Field: lifecycle.Env, Key: "A", Remove: true}
	memory  = lifecycle.Value{Field: lifecycle.MemoryLimit, Int: 1 << 20}
	limit   = lifecycle.Value{Field: lifecycle.ProcessLimit, Key: "RLIMIT_CORE", Text: "0:0"}
)

func all(lifecycle.Field) bool { return true }

// attachment carries everything; less changes that.
func attachment(less func(*Capabilities)) *Capabilities {
	every := lifecycle.FieldsWhere(all)
	can := &Capabilities{Name: "test", Create: every, Update: every, Copy: every}
	if less != nil {
		less(can)
	}
	return can
}

func refuses(can *Capabilities) {
	can.WhyNotAccepted = func(c runtimes.Call, _ lifecycle.Value) string { return "refused by " + c.String() }
}

func nothing(can *Capabilities) { can.Create, can.Update, can.Copy = 0, 0, 0 }

func disabled(can *Capabilities) {
	can.UnchangedCalls = []runtimes.Call{runtimes.CreateCall, runtimes.KubeletUpdate}
}

func old(can *Capabilities) { nothing(can); can.RuntimeName = "old 1.0" }

var errPath = errors.New("no such path")

const (
	refusedCreate = "refused by the creation of a container"
	refusedUpdate = "refused by a kubelet's update"
	refusedPush   = "refused by an update that the agent sends"
	lowering      = "not sent with the kubelet's update, because the update fails if the container uses more memory than the limit"
	createOnly    = "the value can only be set when a container is created; it applies when this container is created again"
)

func TestRoute(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		in   Phase
		less func(*Capabilities)
		v    lifecycle.Value
		k    Inputs
		want Route
	}{
		{"carried", PhaseCreating, nil, cpus, Inputs{}, Route{Sink: ToAnswer}},
		{"carried, without a cgroup", PhaseCreating, nil, cpus, Inputs{NoCgroup: errPath}, Route{Sink: ToAnswer}},
		{"contested", PhaseCreating, nil, cpus, Inputs{WhyLeftToPlugins: "ceded"}, Route{Sink: ToKernel}},
		{"contested and not in the kernel", PhaseCreating, nil, env, Inputs{WhyLeftToPlugins: "ceded"}, Route{Unapplied, api.Ceded, "ceded"}},
		{"refused", PhaseCreating, refuses, cpus, Inputs{}, Route{Sink: ToKernel, Reason: refusedCreate}},
		{"refused, and nothing else brings it", PhaseCreating, refuses, env, Inputs{}, Route{Unapplied, api.NotCarried, refusedCreate}},
		{"not carried", PhaseCreating, nothing, rdt, Inputs{}, Route{Sink: ToKernel}},
		{"not carried, without a cgroup", PhaseCreating, nothing, rdt, Inputs{NoCgroup: errPath}, Route{Unapplied, api.BadCgroup, "no such path"}},
		{"not carried, and nothing else brings it", PhaseCreating, nothing, env, Inputs{}, Route{Unapplied, api.NotCarried, "test cannot set env when a container is created"}},
		{"not carried by an old runtime", PhaseCreating, old, env, Inputs{}, Route{Unapplied, api.NotCarried, "test cannot set env when a container is created: the runtime is old 1.0"}},
		{"disabled", PhaseCreating, disabled, cpus, Inputs{}, Route{Sink: ToKernel}},
		{"disabled, and nothing else brings it", PhaseCreating, disabled, env, Inputs{}, Route{Unapplied, api.NotCarried, "the configuration disables PreCreateContainer (disabledStages) for test"}},
		{"taken away", PhaseCreating, func(can *Capabilities) { can.RemovesEnv = true }, removed, Inputs{}, Route{Sink: ToAnswer}},
		{"cannot be taken away", PhaseCreating, nil, removed, Inputs{}, Route{Unapplied, api.NotCarried, "test cannot remove a value that the kubelet requested from the runtime"}},

		{"an attribute of processes, carried", PhaseCreating, nil, limit, Inputs{}, Route{Sink: ToAnswer}},
		{"an attribute of processes, not carried", PhaseCreating, nothing, limit, Inputs{}, Route{Sink: ToKernel}},
		{"an attribute of processes, refused", PhaseCreating, refuses, limit, Inputs{}, Route{Sink: ToKernel, Reason: refusedCreate}},
		{"an attribute of processes, contested", PhaseCreating, nil, limit, Inputs{WhyLeftToPlugins: "ceded"}, Route{Unapplied, api.Ceded, "ceded"}},
		{"an attribute of processes, without a cgroup", PhaseCreating, nothing, limit, Inputs{NoCgroup: errPath}, Route{Unapplied, api.BadCgroup, "no such path"}},

		{"an attribute of processes, not carried", PhaseCreated, nothing, limit, Inputs{}, Route{Sink: ToKernel}},
		{"an attribute of processes, created with it", PhaseCreated, nil, limit, Inputs{InForce: true}, Route{}},
		{"an attribute of processes, which only its creation holds", PhaseCreated, nil, limit, Inputs{}, Route{}},
		{"has it already", PhaseCreated, nil, cpus, Inputs{InForce: true}, Route{}},
		{"changed meanwhile", PhaseCreated, nil, cpus, Inputs{}, Route{Sink: ToRuntime}},
		{"contested", PhaseCreated, nil, cpus, Inputs{WhyLeftToPlugins: "ceded"}, Route{Sink: ToKernel}},
		{"refused", PhaseCreated, refuses, cpus, Inputs{}, Route{Sink: ToKernel, Reason: refusedPush}},
		{"without a cgroup", PhaseCreated, nil, cpus, Inputs{NoCgroup: errPath}, Route{Unapplied, api.BadCgroup, "no such path"}},
		{"of the creation alone", PhaseCreated, nil, env, Inputs{}, Route{}},

		{"disabled at its creation", PhaseStarting, disabled, cpus, Inputs{}, Route{Sink: ToRuntime}},
		{"changed meanwhile", PhaseStarting, nil, cpus, Inputs{}, Route{Sink: ToRuntime}},
		{"the runtime has it", PhaseStarting, nil, cpus, Inputs{Stored: true}, Route{}},
		{"kept from the runtime", PhaseStarting, nil, cpus, Inputs{KeptFromCopy: true}, Route{}},
		{"refused", PhaseStarting, refuses, cpus, Inputs{}, Route{}},
		{"not stored by runtimes", PhaseStarting, nil, rdt, Inputs{}, Route{}},

		{"carried", PhaseUpdating, nil, cpus, Inputs{InForce: true, Stored: true}, Route{Sink: ToAnswer}},
		{"kept from the runtime", PhaseUpdating, refuses, cpus, Inputs{KeptFromCopy: true}, Route{Sink: ToKernel}},
		{"refused", PhaseUpdating, refuses, cpus, Inputs{}, Route{Sink: ToKernel, Reason: refusedUpdate}},
		{"not carried", PhaseUpdating, nothing, cpus, Inputs{}, Route{Sink: ToKernel}},
		{"disabled", PhaseUpdating, disabled, cpus, Inputs{}, Route{Sink: ToKernel}},
		{"lowers a limit", PhaseUpdating, nil, memory, Inputs{SetsMemoryLimit: true}, Route{Sink: ToKernel, Reason: lowering}},
		{"of the creation alone", PhaseUpdating, nil, env, Inputs{}, Route{}},

		{"in the kernel", PhaseRunning, nil, cpus, Inputs{}, Route{Sink: ToKernel}},
		{"in the kernel, in force", PhaseRunning, nil, cpus, Inputs{InForce: true}, Route{Sink: ToKernel}},
		{"the runtime's copy cannot have it", PhaseRunning, refuses, cpus, Inputs{}, Route{Sink: ToKernel, Reason: refusedPush}},
		{"the runtime's copy has it", PhaseRunning, refuses, cpus, Inputs{Stored: true}, Route{Sink: ToKernel}},
		{"without a cgroup", PhaseRunning, nil, cpus, Inputs{NoCgroup: errPath}, Route{Unapplied, api.BadCgroup, "no such path"}},
		{"delivered", PhaseRunning, nil, env, Inputs{InForce: true}, Route{}},
		{"created with it", PhaseRunning, nil, env, Inputs{CreatedWith: true}, Route{Sink: CreatedWith}},
		{"created without it", PhaseRunning, nil, env, Inputs{}, Route{Unapplied, api.CreateOnly, createOnly}},
		{"an attribute of processes, not carried", PhaseRunning, nothing, limit, Inputs{}, Route{Sink: ToKernel}},
		{"an attribute of processes, set before", PhaseRunning, nothing, limit, Inputs{InForce: true}, Route{}},
		{"an attribute of processes, created with it", PhaseRunning, nothing, limit, Inputs{CreatedWith: true}, Route{Sink: CreatedWith}},
		{"an attribute of processes, carried by creations alone", PhaseRunning, nil, limit, Inputs{}, Route{Unapplied, api.CreateOnly, createOnly}},
		{"never carried", PhaseRunning, nothing, env, Inputs{}, Route{Unapplied, api.NotCarried, "test cannot set env when a container is created"}},
		{"created while its stage is disabled", PhaseRunning, disabled, env, Inputs{}, Route{Unapplied, api.NotCarried, "the configuration disables PreCreateContainer (disabledStages) for test"}},
		{"of no attachment's event", PhaseRunning, nothing, env, Inputs{NoAttachment: true}, Route{Unapplied, api.CreateOnly, createOnly}},

		{"carried", PhaseLosingCPUs, nil, cpus, Inputs{Stored: true}, Route{Sink: ToRuntime}},
		{"not carried", PhaseLosingCPUs, nothing, cpus, Inputs{}, Route{}},
		{"outdated", PhaseCopying, nil, cpus, Inputs{WhyLeftToPlugins: "ceded"}, Route{Sink: ToRuntime}},
		{"the runtime has it", PhaseCopying, nil, cpus, Inputs{Stored: true}, Route{}},
		{"kept from the runtime", PhaseCopying, nil, cpus, Inputs{KeptFromCopy: true}, Route{}},
		{"refused", PhaseCopying, refuses, cpus, Inputs{}, Route{}},
		{"outdated", PhasePiggyback, nil, cpus, Inputs{}, Route{Sink: ToRuntime}},
		{"another plugin may set it in the same answer", PhasePiggyback, nil, cpus, Inputs{WhyLeftToPlugins: "ceded"}, Route{}},
	} {
		if got := ChooseSink(tc.in, attachment(tc.less), tc.v, tc.k); got != tc.want {
			t.Errorf("phase %d, %s: %+v, not %+v", tc.in, tc.name, got, tc.want)
		}
	}
}

// TestEveryRowCounts: what no value reaches is not in the table.
func TestEveryRowCounts(t *testing.T) {
	t.Parallel()
	reached := map[int]bool{}
	for p := PhaseCreating; p <= PhasePiggyback; p++ {
		for has := range condition(1 << 12) {
			for i, r := range routeTable {
				if r.phase == p && has&r.requires == r.requires && has&r.unless == 0 {
					reached[i] = true
					break
				}
			}
		}
	}
	for i := range routeTable {
		if !reached[i] {
			t.Errorf("row %d is never asked: %+v", i, routeTable[i])
		}
	}
}
