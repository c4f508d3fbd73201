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

func disabled(can *Capabilities) { can.Disabled = []runtimes.Call{runtimes.Create, runtimes.Request} }

func old(can *Capabilities) { nothing(can); can.About = "old 1.0" }

var errPath = errors.New("no such path")

const (
	refusedCreate = "refused by the creation of a container"
	refusedUpdate = "refused by a kubelet's update"
	refusedPush   = "refused by an update of our own"
	lowering      = "not sent with the kubelet's update, because the update fails if more memory is in use"
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
		{"carried", Creating, nil, cpus, Inputs{}, Route{To: Answer}},
		{"carried, without a cgroup", Creating, nil, cpus, Inputs{NoCgroup: errPath}, Route{To: Answer}},
		{"contested", Creating, nil, cpus, Inputs{ContestedBy: "ceded"}, Route{To: Kernel}},
		{"contested and not in the kernel", Creating, nil, env, Inputs{ContestedBy: "ceded"}, Route{Unapplied, api.Ceded, "ceded"}},
		{"refused", Creating, refuses, cpus, Inputs{}, Route{To: Kernel, Why: refusedCreate}},
		{"refused, and nothing else brings it", Creating, refuses, env, Inputs{}, Route{Unapplied, api.NotCarried, refusedCreate}},
		{"not carried", Creating, nothing, rdt, Inputs{}, Route{To: Kernel}},
		{"not carried, without a cgroup", Creating, nothing, rdt, Inputs{NoCgroup: errPath}, Route{Unapplied, api.BadCgroup, "no such path"}},
		{"not carried, and nothing else brings it", Creating, nothing, env, Inputs{}, Route{Unapplied, api.NotCarried, "test cannot carry env when a container is created"}},
		{"not carried by an old runtime", Creating, old, env, Inputs{}, Route{Unapplied, api.NotCarried, "test cannot carry env when a container is created: the runtime is old 1.0"}},
		{"disabled", Creating, disabled, cpus, Inputs{}, Route{To: Kernel}},
		{"disabled, and nothing else brings it", Creating, disabled, env, Inputs{}, Route{Unapplied, api.NotCarried, "the stage PreCreateContainer is disabled for test"}},
		{"taken away", Creating, func(can *Capabilities) { can.RemovesEnv = true }, removed, Inputs{}, Route{To: Answer}},
		{"cannot be taken away", Creating, nil, removed, Inputs{}, Route{Unapplied, api.NotCarried, "test cannot remove a value that the kubelet requested from the runtime"}},

		{"an attribute of processes, carried", Creating, nil, limit, Inputs{}, Route{To: Answer}},
		{"an attribute of processes, not carried", Creating, nothing, limit, Inputs{}, Route{To: Kernel}},
		{"an attribute of processes, refused", Creating, refuses, limit, Inputs{}, Route{To: Kernel, Why: refusedCreate}},
		{"an attribute of processes, contested", Creating, nil, limit, Inputs{ContestedBy: "ceded"}, Route{Unapplied, api.Ceded, "ceded"}},
		{"an attribute of processes, without a cgroup", Creating, nothing, limit, Inputs{NoCgroup: errPath}, Route{Unapplied, api.BadCgroup, "no such path"}},

		{"an attribute of processes, not carried", Named, nothing, limit, Inputs{}, Route{To: Kernel}},
		{"an attribute of processes, created with it", Named, nil, limit, Inputs{InForce: true}, Route{}},
		{"an attribute of processes, which only its creation holds", Named, nil, limit, Inputs{}, Route{}},
		{"has it already", Named, nil, cpus, Inputs{InForce: true}, Route{}},
		{"changed meanwhile", Named, nil, cpus, Inputs{}, Route{To: Runtime}},
		{"contested", Named, nil, cpus, Inputs{ContestedBy: "ceded"}, Route{To: Kernel}},
		{"refused", Named, refuses, cpus, Inputs{}, Route{To: Kernel, Why: refusedPush}},
		{"without a cgroup", Named, nil, cpus, Inputs{NoCgroup: errPath}, Route{Unapplied, api.BadCgroup, "no such path"}},
		{"of the creation alone", Named, nil, env, Inputs{}, Route{}},

		{"disabled at its creation", Starting, disabled, cpus, Inputs{}, Route{To: Runtime}},
		{"changed meanwhile", Starting, nil, cpus, Inputs{}, Route{To: Runtime}},
		{"the runtime has it", Starting, nil, cpus, Inputs{Stored: true}, Route{}},
		{"kept from the runtime", Starting, nil, cpus, Inputs{KeptFromCopy: true}, Route{}},
		{"refused", Starting, refuses, cpus, Inputs{}, Route{}},
		{"not stored by runtimes", Starting, nil, rdt, Inputs{}, Route{}},

		{"carried", Updating, nil, cpus, Inputs{InForce: true, Stored: true}, Route{To: Answer}},
		{"kept from the runtime", Updating, refuses, cpus, Inputs{KeptFromCopy: true}, Route{To: Kernel}},
		{"refused", Updating, refuses, cpus, Inputs{}, Route{To: Kernel, Why: refusedUpdate}},
		{"not carried", Updating, nothing, cpus, Inputs{}, Route{To: Kernel}},
		{"disabled", Updating, disabled, cpus, Inputs{}, Route{To: Kernel}},
		{"lowers a limit", Updating, nil, memory, Inputs{LowersLimit: true}, Route{To: Kernel, Why: lowering}},
		{"of the creation alone", Updating, nil, env, Inputs{}, Route{}},

		{"in the kernel", Running, nil, cpus, Inputs{}, Route{To: Kernel}},
		{"in the kernel, in force", Running, nil, cpus, Inputs{InForce: true}, Route{To: Kernel}},
		{"the runtime's copy cannot have it", Running, refuses, cpus, Inputs{}, Route{To: Kernel, Why: refusedPush}},
		{"the runtime's copy has it", Running, refuses, cpus, Inputs{Stored: true}, Route{To: Kernel}},
		{"without a cgroup", Running, nil, cpus, Inputs{NoCgroup: errPath}, Route{Unapplied, api.BadCgroup, "no such path"}},
		{"delivered", Running, nil, env, Inputs{InForce: true}, Route{}},
		{"created with it", Running, nil, env, Inputs{CreatedWith: true}, Route{To: CreatedWith}},
		{"created without it", Running, nil, env, Inputs{}, Route{Unapplied, api.CreateOnly, createOnly}},
		{"an attribute of processes, not carried", Running, nothing, limit, Inputs{}, Route{To: Kernel}},
		{"an attribute of processes, set before", Running, nothing, limit, Inputs{InForce: true}, Route{}},
		{"an attribute of processes, created with it", Running, nothing, limit, Inputs{CreatedWith: true}, Route{To: CreatedWith}},
		{"an attribute of processes, carried by creations alone", Running, nil, limit, Inputs{}, Route{Unapplied, api.CreateOnly, createOnly}},
		{"never carried", Running, nothing, env, Inputs{}, Route{Unapplied, api.NotCarried, "test cannot carry env when a container is created"}},
		{"created while its stage is disabled", Running, disabled, env, Inputs{}, Route{Unapplied, api.NotCarried, "the stage PreCreateContainer is disabled for test"}},
		{"of no attachment's event", Running, nothing, env, Inputs{NoAttachment: true}, Route{Unapplied, api.CreateOnly, createOnly}},

		{"carried", LosingCPUs, nil, cpus, Inputs{Stored: true}, Route{To: Runtime}},
		{"not carried", LosingCPUs, nothing, cpus, Inputs{}, Route{}},
		{"outdated", Copying, nil, cpus, Inputs{ContestedBy: "ceded"}, Route{To: Runtime}},
		{"the runtime has it", Copying, nil, cpus, Inputs{Stored: true}, Route{}},
		{"kept from the runtime", Copying, nil, cpus, Inputs{KeptFromCopy: true}, Route{}},
		{"refused", Copying, refuses, cpus, Inputs{}, Route{}},
		{"outdated", Piggyback, nil, cpus, Inputs{}, Route{To: Runtime}},
		{"another plugin may set it in the same answer", Piggyback, nil, cpus, Inputs{ContestedBy: "ceded"}, Route{}},
	} {
		if got := Of(tc.in, attachment(tc.less), tc.v, tc.k); got != tc.want {
			t.Errorf("phase %d, %s: %+v, not %+v", tc.in, tc.name, got, tc.want)
		}
	}
}

// TestEveryRowCounts: what no value reaches is not in the table.
func TestEveryRowCounts(t *testing.T) {
	t.Parallel()
	reached := map[int]bool{}
	for p := Creating; p <= Piggyback; p++ {
		for has := range cond(1 << 12) {
			for i, r := range table {
				if r.in == p && has&r.when == r.when && has&r.unless == 0 {
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
