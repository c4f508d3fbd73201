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
	can.Takes = func(c runtimes.Call, _ lifecycle.Value) string { return "refused by " + c.String() }
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
		k    Known
		want Route
	}{
		{"carried", Creating, nil, cpus, Known{}, Route{To: Answer}},
		{"carried, without a cgroup", Creating, nil, cpus, Known{NoCgroup: errPath}, Route{To: Answer}},
		{"contested", Creating, nil, cpus, Known{Contest: "ceded"}, Route{To: Kernel}},
		{"contested and not in the kernel", Creating, nil, env, Known{Contest: "ceded"}, Route{Unapplied, api.Ceded, "ceded"}},
		{"refused", Creating, refuses, cpus, Known{}, Route{To: Kernel, Why: refusedCreate}},
		{"refused, and nothing else brings it", Creating, refuses, env, Known{}, Route{Unapplied, api.NotCarried, refusedCreate}},
		{"not carried", Creating, nothing, rdt, Known{}, Route{To: Kernel}},
		{"not carried, without a cgroup", Creating, nothing, rdt, Known{NoCgroup: errPath}, Route{Unapplied, api.BadCgroup, "no such path"}},
		{"not carried, and nothing else brings it", Creating, nothing, env, Known{}, Route{Unapplied, api.NotCarried, "test cannot carry env when a container is created"}},
		{"not carried by an old runtime", Creating, old, env, Known{}, Route{Unapplied, api.NotCarried, "test cannot carry env when a container is created: the runtime is old 1.0"}},
		{"disabled", Creating, disabled, cpus, Known{}, Route{To: Kernel}},
		{"disabled, and nothing else brings it", Creating, disabled, env, Known{}, Route{Unapplied, api.NotCarried, "the stage PreCreateContainer is disabled for test"}},
		{"taken away", Creating, func(can *Capabilities) { can.RemovesEnv = true }, removed, Known{}, Route{To: Answer}},
		{"cannot be taken away", Creating, nil, removed, Known{}, Route{Unapplied, api.NotCarried, "test cannot remove a value that the kubelet requested from the runtime"}},

		{"has it already", Named, nil, cpus, Known{InForce: true}, Route{}},
		{"changed meanwhile", Named, nil, cpus, Known{}, Route{To: Runtime}},
		{"contested", Named, nil, cpus, Known{Contest: "ceded"}, Route{To: Kernel}},
		{"refused", Named, refuses, cpus, Known{}, Route{To: Kernel, Why: refusedPush}},
		{"without a cgroup", Named, nil, cpus, Known{NoCgroup: errPath}, Route{Unapplied, api.BadCgroup, "no such path"}},
		{"of the creation alone", Named, nil, env, Known{}, Route{}},

		{"disabled at its creation", Starting, disabled, cpus, Known{}, Route{To: Runtime}},
		{"changed meanwhile", Starting, nil, cpus, Known{}, Route{To: Runtime}},
		{"the runtime has it", Starting, nil, cpus, Known{Stored: true}, Route{}},
		{"kept from the runtime", Starting, nil, cpus, Known{Kept: true}, Route{}},
		{"refused", Starting, refuses, cpus, Known{}, Route{}},
		{"not stored by runtimes", Starting, nil, rdt, Known{}, Route{}},

		{"carried", Updating, nil, cpus, Known{InForce: true, Stored: true}, Route{To: Answer}},
		{"kept from the runtime", Updating, refuses, cpus, Known{Kept: true}, Route{To: Kernel}},
		{"refused", Updating, refuses, cpus, Known{}, Route{To: Kernel, Why: refusedUpdate}},
		{"not carried", Updating, nothing, cpus, Known{}, Route{To: Kernel}},
		{"disabled", Updating, disabled, cpus, Known{}, Route{To: Kernel}},
		{"lowers a limit", Updating, nil, memory, Known{Lowers: true}, Route{To: Kernel, Why: lowering}},
		{"of the creation alone", Updating, nil, env, Known{}, Route{}},

		{"in the kernel", Living, nil, cpus, Known{}, Route{To: Kernel}},
		{"in the kernel, in force", Living, nil, cpus, Known{InForce: true}, Route{To: Kernel}},
		{"the runtime's copy cannot have it", Living, refuses, cpus, Known{}, Route{To: Kernel, Why: refusedPush}},
		{"the runtime's copy has it", Living, refuses, cpus, Known{Stored: true}, Route{To: Kernel}},
		{"without a cgroup", Living, nil, cpus, Known{NoCgroup: errPath}, Route{Unapplied, api.BadCgroup, "no such path"}},
		{"delivered", Living, nil, env, Known{InForce: true}, Route{}},
		{"created with it", Living, nil, env, Known{Given: true}, Route{To: Given}},
		{"created without it", Living, nil, env, Known{}, Route{Unapplied, api.CreateOnly, createOnly}},
		{"never carried", Living, nothing, env, Known{}, Route{Unapplied, api.NotCarried, "test cannot carry env when a container is created"}},
		{"created while its stage is disabled", Living, disabled, env, Known{}, Route{Unapplied, api.NotCarried, "the stage PreCreateContainer is disabled for test"}},
		{"of no attachment's event", Living, nothing, env, Known{Unasked: true}, Route{Unapplied, api.CreateOnly, createOnly}},

		{"carried", Losing, nil, cpus, Known{Stored: true}, Route{To: Runtime}},
		{"not carried", Losing, nothing, cpus, Known{}, Route{}},
		{"outdated", Copying, nil, cpus, Known{Contest: "ceded"}, Route{To: Runtime}},
		{"the runtime has it", Copying, nil, cpus, Known{Stored: true}, Route{}},
		{"kept from the runtime", Copying, nil, cpus, Known{Kept: true}, Route{}},
		{"refused", Copying, refuses, cpus, Known{}, Route{}},
		{"outdated", Piggyback, nil, cpus, Known{}, Route{To: Runtime}},
		{"another plugin may set it in the same answer", Piggyback, nil, cpus, Known{Contest: "ceded"}, Route{}},
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
		for has := range cond(1 << 11) {
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
