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

func old(can *Capabilities) { nothing(can); can.About = "old 1.0" }

var errPath = errors.New("no such path")

const (
	refusedCreate = "refused by the creation of a container"
	refusedUpdate = "refused by a kubelet's update"
	refusedPush   = "refused by an update of our own"
	lowering      = "not sent with the kubelet's update, because the update fails if the container uses more memory than the limit"
	createOnly    = "only the creation of a container can carry it; it applies when the container is created again"
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
		{"carried", Creating, nil, cpus, Inputs{}, Route{Sink: Answer}},
		{"carried, without a cgroup", Creating, nil, cpus, Inputs{NoCgroup: errPath}, Route{Sink: Answer}},
		{"contested", Creating, nil, cpus, Inputs{ContestedBy: "ceded"}, Route{Sink: Kernel}},
		{"contested and not in the kernel", Creating, nil, env, Inputs{ContestedBy: "ceded"}, Route{Unapplied, api.Ceded, "ceded"}},
		{"refused", Creating, refuses, cpus, Inputs{}, Route{Sink: Kernel, Reason: refusedCreate}},
		{"refused, and nothing else brings it", Creating, refuses, env, Inputs{}, Route{Unapplied, api.NotCarried, refusedCreate}},
		{"not carried", Creating, nothing, rdt, Inputs{}, Route{Sink: Kernel}},
		{"not carried, without a cgroup", Creating, nothing, rdt, Inputs{NoCgroup: errPath}, Route{Unapplied, api.BadCgroup, "no such path"}},
		{"not carried, and nothing else brings it", Creating, nothing, env, Inputs{}, Route{Unapplied, api.NotCarried, "test cannot carry env when a container is created"}},
		{"not carried by an old runtime", Creating, old, env, Inputs{}, Route{Unapplied, api.NotCarried, "test cannot carry env when a container is created: the runtime is old 1.0"}},
		{"disabled", Creating, disabled, cpus, Inputs{}, Route{Sink: Kernel}},
		{"disabled, and nothing else brings it", Creating, disabled, env, Inputs{}, Route{Unapplied, api.NotCarried, "the stage PreCreateContainer is disabled for test"}},
		{"taken away", Creating, func(can *Capabilities) { can.RemovesEnv = true }, removed, Inputs{}, Route{Sink: Answer}},
		{"cannot be taken away", Creating, nil, removed, Inputs{}, Route{Unapplied, api.NotCarried, "test cannot remove a value that the kubelet requested from the runtime"}},

		{"an attribute of processes, carried", Creating, nil, limit, Inputs{}, Route{Sink: Answer}},
		{"an attribute of processes, not carried", Creating, nothing, limit, Inputs{}, Route{Sink: Kernel}},
		{"an attribute of processes, refused", Creating, refuses, limit, Inputs{}, Route{Sink: Kernel, Reason: refusedCreate}},
		{"an attribute of processes, contested", Creating, nil, limit, Inputs{ContestedBy: "ceded"}, Route{Unapplied, api.Ceded, "ceded"}},
		{"an attribute of processes, without a cgroup", Creating, nothing, limit, Inputs{NoCgroup: errPath}, Route{Unapplied, api.BadCgroup, "no such path"}},

		{"an attribute of processes, not carried", Created, nothing, limit, Inputs{}, Route{Sink: Kernel}},
		{"an attribute of processes, created with it", Created, nil, limit, Inputs{InForce: true}, Route{}},
		{"an attribute of processes, which only its creation holds", Created, nil, limit, Inputs{}, Route{}},
		{"has it already", Created, nil, cpus, Inputs{InForce: true}, Route{}},
		{"changed meanwhile", Created, nil, cpus, Inputs{}, Route{Sink: Runtime}},
		{"contested", Created, nil, cpus, Inputs{ContestedBy: "ceded"}, Route{Sink: Kernel}},
		{"refused", Created, refuses, cpus, Inputs{}, Route{Sink: Kernel, Reason: refusedPush}},
		{"without a cgroup", Created, nil, cpus, Inputs{NoCgroup: errPath}, Route{Unapplied, api.BadCgroup, "no such path"}},
		{"of the creation alone", Created, nil, env, Inputs{}, Route{}},

		{"disabled at its creation", Starting, disabled, cpus, Inputs{}, Route{Sink: Runtime}},
		{"changed meanwhile", Starting, nil, cpus, Inputs{}, Route{Sink: Runtime}},
		{"the runtime has it", Starting, nil, cpus, Inputs{Stored: true}, Route{}},
		{"kept from the runtime", Starting, nil, cpus, Inputs{KeptFromCopy: true}, Route{}},
		{"refused", Starting, refuses, cpus, Inputs{}, Route{}},
		{"not stored by runtimes", Starting, nil, rdt, Inputs{}, Route{}},

		{"carried", Updating, nil, cpus, Inputs{InForce: true, Stored: true}, Route{Sink: Answer}},
		{"kept from the runtime", Updating, refuses, cpus, Inputs{KeptFromCopy: true}, Route{Sink: Kernel}},
		{"refused", Updating, refuses, cpus, Inputs{}, Route{Sink: Kernel, Reason: refusedUpdate}},
		{"not carried", Updating, nothing, cpus, Inputs{}, Route{Sink: Kernel}},
		{"disabled", Updating, disabled, cpus, Inputs{}, Route{Sink: Kernel}},
		{"lowers a limit", Updating, nil, memory, Inputs{SetsMemoryLimit: true}, Route{Sink: Kernel, Reason: lowering}},
		{"of the creation alone", Updating, nil, env, Inputs{}, Route{}},

		{"in the kernel", Running, nil, cpus, Inputs{}, Route{Sink: Kernel}},
		{"in the kernel, in force", Running, nil, cpus, Inputs{InForce: true}, Route{Sink: Kernel}},
		{"the runtime's copy cannot have it", Running, refuses, cpus, Inputs{}, Route{Sink: Kernel, Reason: refusedPush}},
		{"the runtime's copy has it", Running, refuses, cpus, Inputs{Stored: true}, Route{Sink: Kernel}},
		{"without a cgroup", Running, nil, cpus, Inputs{NoCgroup: errPath}, Route{Unapplied, api.BadCgroup, "no such path"}},
		{"delivered", Running, nil, env, Inputs{InForce: true}, Route{}},
		{"created with it", Running, nil, env, Inputs{CreatedWith: true}, Route{Sink: CreatedWith}},
		{"created without it", Running, nil, env, Inputs{}, Route{Unapplied, api.CreateOnly, createOnly}},
		{"an attribute of processes, not carried", Running, nothing, limit, Inputs{}, Route{Sink: Kernel}},
		{"an attribute of processes, set before", Running, nothing, limit, Inputs{InForce: true}, Route{}},
		{"an attribute of processes, created with it", Running, nothing, limit, Inputs{CreatedWith: true}, Route{Sink: CreatedWith}},
		{"an attribute of processes, carried by creations alone", Running, nil, limit, Inputs{}, Route{Unapplied, api.CreateOnly, createOnly}},
		{"never carried", Running, nothing, env, Inputs{}, Route{Unapplied, api.NotCarried, "test cannot carry env when a container is created"}},
		{"created while its stage is disabled", Running, disabled, env, Inputs{}, Route{Unapplied, api.NotCarried, "the stage PreCreateContainer is disabled for test"}},
		{"of no attachment's event", Running, nothing, env, Inputs{NoAttachment: true}, Route{Unapplied, api.CreateOnly, createOnly}},

		{"carried", LosingCPUs, nil, cpus, Inputs{Stored: true}, Route{Sink: Runtime}},
		{"not carried", LosingCPUs, nothing, cpus, Inputs{}, Route{}},
		{"outdated", Copying, nil, cpus, Inputs{ContestedBy: "ceded"}, Route{Sink: Runtime}},
		{"the runtime has it", Copying, nil, cpus, Inputs{Stored: true}, Route{}},
		{"kept from the runtime", Copying, nil, cpus, Inputs{KeptFromCopy: true}, Route{}},
		{"refused", Copying, refuses, cpus, Inputs{}, Route{}},
		{"outdated", Piggyback, nil, cpus, Inputs{}, Route{Sink: Runtime}},
		{"another plugin may set it in the same answer", Piggyback, nil, cpus, Inputs{ContestedBy: "ceded"}, Route{}},
	} {
		if got := Choose(tc.in, attachment(tc.less), tc.v, tc.k); got != tc.want {
			t.Errorf("phase %d, %s: %+v, not %+v", tc.in, tc.name, got, tc.want)
		}
	}
}

// TestEveryRowCounts: what no value reaches is not in the table.
func TestEveryRowCounts(t *testing.T) {
	t.Parallel()
	reached := map[int]bool{}
	for p := Creating; p <= Piggyback; p++ {
		for has := range condition(1 << 12) {
			for i, r := range table {
				if r.phase == p && has&r.requires == r.requires && has&r.unless == 0 {
					reached[i] = true
					break
				}
			}
		}
	}
	for i := range table {
		if !reached[i] {
			t.Errorf("row %d is never asked: %+v", i, table[i])
		}
	}
}
