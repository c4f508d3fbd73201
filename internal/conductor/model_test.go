package conductor_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/cpuclass"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/facts"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/none"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/topology"
)

// model is a small runtime and kernel: it stores specs as containerd does, applies answers, and
// makes cgroups when containers start. It shares no code with the decisions; the invariants are
// checked on its state.
type model struct {
	kernel  *kernel.Cgroups
	version cgroup.Version
	machine *topology.Machine
	policy  engine.Policy
	con     *conductor.Conductor
	pods    []*modelPod
	ratio   hook.Ratio        // of CPU normalization
	taking  map[string]string // cpusets before a restart without records, until that is complete
	proxied bool              // events come as a CRI proxy reports them
	between func()            // called while the runtime creates a container
	liar    facts.HookServers // a hook server; nil for none
	plugins facts.ResourcePlugins
	classes *cpuclass.Writer       // nil for no CPU classes
	devices []lifecycle.NodeDevice // CDI devices of the kind v.com/gpu; nil for none
	arrives func(*modelPod)        // called before the runtime reports a pod; nil for nothing
	now     func() time.Time       // the agent's clock, which stands still by default
	n       int
	faults  faults
	broken  []string
	writes  int
	journal *memory // the journal of originals, kept across restarts; nil for none
	log     io.Writer
	from    conductor.Carrier
	// foreign: the runtime writes before an attachment beside it is notified. I1 is checked
	// after the agent was notified.
	foreign bool
	// dress makes a pod of the policy pools from a plain one; nil under other policies.
	dress func(*modelPod)
	// lending: CPUs were lent before the configuration that is being applied.
	lending bool
	// held are the CPUs that owners had before a resize, by cgroup. While the kernel shows
	// them, no other container may have them.
	held map[string]string
	// unsaved: each restart loses the checkpoint, but not the records.
	unsaved bool
	// blur removes from a Synchronize what a runtime cannot describe; nil removes nothing.
	hideDescriptions func(*lifecycle.Event)
	// unlisted: the history makes no requests that only the checkpoint would know: no CPU lists
	// after the creation (the kubelet's static CPU manager repeats its list within seconds),
	// and no updates of a container that asked for nothing at its creation.
	unlisted bool
	// creating is the container that the runtime is creating, and granted are the grants before
	// it. They distinguish two containers of one name.
	creating *modelCtr
	granted  map[string]bool
	// all are the ids of the machine's CPUs, online or not. first is the one that may be
	// reserved. lists are CPU lists for updates.
	all   []int
	first int
	lists []string
	// seen is called with every answer.
	seen func(ev *lifecycle.Event, ans conductor.Answer, err error)
	// once: no container is created while one of its name runs, as a kubelet has it.
	once bool
}

// faults are planted faults: each must make its invariant's check fail.
type faults struct {
	forgetShrink bool // others keep the CPUs that are given away (I1)
	lateShrink   bool // others lose them only after the container has started (I1)
	emptyCPUSet  bool // an answer has an empty CPU list (I2)
	dropValue    bool // a decided value is applied nowhere (I3)
	loseRecord   bool // records do not survive a restart (I4)
	touchSilent  bool // pods without intent get a value (I5)
	keepGrant    bool // a pod's end does not free its CPUs (I4)
	forgetAsked  bool // neither records nor the checkpoint survive a restart (I4, quotas)
}

type modelPod struct {
	lifecycle.Pod
	asked   string // CPUs its annotation assigns
	stopped bool
	ctrs    []*modelCtr
	wants   lifecycle.Resources // of each container, if dress made the pod
}

type modelCtr struct {
	created []string // settings that its creation was answered with, beside those of resources and environment
	lifecycle.Container
	pod     *modelPod
	started bool
	ended   bool
	mems    string // memory nodes it started with
	// asked are the resources before any answer.
	asked lifecycle.Resources
}

// carrier carries what NRI carries.
type carrier struct{}

func (carrier) Name() string { return "model" }

func (carrier) Capabilities() conductor.Capabilities {
	return conductor.Capabilities{Name: "model", RuntimeName: "a model", Create: everyField, Update: resourceFields, Copy: resourceFields, OthersAnswer: true}
}

var (
	everyField     = lifecycle.FieldsWhere(func(lifecycle.Field) bool { return true })
	resourceFields = lifecycle.FieldsWhere(func(f lifecycle.Field) bool { return f <= lifecycle.MemoryLimit })
)

// proxy carries what a CRI proxy does, and holds starts.
type proxy struct{ carrier }

// observing carries nothing, like bypass.
type observing struct{}

func (observing) Name() string { return "model" }

func (observing) Capabilities() conductor.Capabilities {
	return conductor.Capabilities{Name: "model", Copy: resourceFields}
}

func (proxy) Capabilities() conductor.Capabilities {
	can := carrier{}.Capabilities()
	can.HoldsStart, can.OthersAnswer = true, false
	return can
}

// beside reports whether the model's attachment is notified of events after they happened.
func (mo *model) beside() bool { return mo.from == conductor.Carrier(observing{}) }

// newModel is a model of a machine of eight CPUs, two a core, on two NUMA nodes.
func newModel(t testing.TB, v cgroup.Version, f faults) *model {
	t.Helper()
	return newModelOn(t, eight(t), v, f)
}

// newModelOn is a model of any machine.
func newModelOn(t testing.TB, m *topology.Machine, v cgroup.Version, f faults) *model {
	t.Helper()
	mo := &model{from: carrier{}, now: func() time.Time { return time.Unix(0, 0) }, log: io.Discard, version: v, machine: m, faults: f}
	var mems []int
	for _, n := range m.Nodes {
		mems = append(mems, n.ID)
	}
	for i := range m.CPUs {
		mo.all = append(mo.all, m.CPUs[i].ID)
	}
	kernel, err := kernel.NewCgroups(v, topology.FormatList(mo.all), topology.FormatList(mems))
	if err != nil {
		t.Fatal(err)
	}
	mo.kernel = kernel
	mo.first, mo.lists = mo.all[0], []string{topology.FormatList(mo.all[:4]), topology.FormatList(mo.all), fmt.Sprint(mo.all[2])}
	for i, id := range mo.all {
		must(kernel.SetOnline(id, m.Online().Has(i)))
	}
	if err := kernel.MkdirRunc("kubepods"); err != nil {
		t.Fatal(err)
	}
	mo.policy = engine.Policy{
		Dialects: []string{"koordinator", "katalyst", "rubik", "kubernetes", "nri-plugins", "nri"}, PlacementOn: true, Placement: none.Policy{},
		Pools: placement.Pools{Online: m.Online(), Shared: m.Online(), Reclaimed: m.Online()},
		Rules: intent.Rules{{Kinds: []intent.Kind{"*"}, Namespaces: []string{"*"}, Decision: intent.Allow}},
	}
	mo.normalize(100)
	kernel.OnWrite(func(string, string) { mo.writes++; mo.checkExclusive("at a write") })
	mo.boot()
	return mo
}

// boot starts an agent without a checkpoint.
func (mo *model) boot() {
	var saved []byte
	if mo.con != nil && !mo.faults.forgetAsked && !mo.unsaved {
		saved = mo.con.Checkpoint().Text()
	}
	mo.bootWith(saved)
}

func (mo *model) bootWith(saved []byte) {
	var fsys cgroup.FS = mo.kernel
	if mo.faults.forgetShrink || mo.faults.lateShrink {
		fsys = deafFS{mo.kernel}
	}
	k := keeper.New(&cgroup.Tree{FS: fsys, Version: mo.version})
	if mo.journal != nil {
		var earlier []byte
		if mo.con != nil {
			earlier = append([]byte{}, mo.journal.Bytes()...)
		}
		must(k.Originals.Load(mo.journal, earlier))
	}
	mo.con = conductor.New(conductor.Options{
		Checkpoint: saved, HookServers: mo.liar, Plugins: mo.plugins, DecidesAhead: mo.plugins != nil,
		Machine: mo.machine, Policy: mo.policy,
		Keeper: k,
		Key:    []byte("a key of the test, 32 bytes long"), Log: slog.New(slog.NewTextHandler(mo.log, nil)),
		Now:         func() time.Time { return mo.now() },
		CPUClasses:  mo.classes,
		NodeDevices: func() []lifecycle.NodeDevice { return mo.devices },
	})
}

// normalize switches CPU normalization to a ratio.
func (mo *model) normalize(ratio hook.Ratio) {
	mo.ratio = ratio
	mo.policy.Hooks = []hook.Hook{hook.CPUSetOptions{UnsetQuota: true}, hook.BatchOptions{}, hook.GPU{}, hook.Normalization{Ratio: ratio},
		hook.GroupIdentity{LSR: 2, LS: 2, BE: -1, Fallback: hook.YieldWeight, KernelSupport: lifecycle.NotSupported},
		hook.Burst{}, hook.Preemption{Yield: hook.YieldIdle},
	}
	if mo.devices != nil {
		mo.policy.Hooks = append(mo.policy.Hooks, hook.CDIDevicesOptions{Classes: []string{"v.com/gpu"}})
	}
}

// burst is what every third pod requests, in µs.
const burst = 60000

// deafFS loses every cpuset write.
type deafFS struct{ cgroup.FS }

func (d deafFS) WriteFile(path string, data []byte) error {
	if strings.HasSuffix(path, "cpuset.cpus") {
		return nil
	}
	return d.FS.WriteFile(path, data)
}

func (mo *model) wrong(format string, args ...any) {
	if len(mo.broken) < 5 {
		mo.broken = append(mo.broken, fmt.Sprintf(format, args...))
	}
}

func (mo *model) handle(ev lifecycle.Event) (conductor.Answer, bool) {
	from := mo.from
	if mo.proxied {
		from = proxy{}
	}
	ans, err := mo.con.Handle(context.Background(), from, ev)
	mo.con.Flush() // a Synchronize is answered before it is applied
	if mo.seen != nil {
		mo.seen(&ev, ans, err)
	}
	if mo.proxied { // a proxy applies all of an answer; NRI has fields for it in some answers
		mo.others(ans)
	}
	return ans, err == nil
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func clone[T any](v *T) *T { c := *v; return &c }

func (mo *model) grants() map[string]bool {
	out := map[string]bool{}
	for _, g := range nodeview.Status(mo.con).CPUs.Grants {
		out[g.Pod+"/"+g.Container+" "+g.CPUs] = true
	}
	return out
}

func (mo *model) live() []*modelCtr {
	var out []*modelCtr
	for _, p := range mo.pods {
		for _, c := range p.ctrs {
			if !c.ended {
				out = append(out, c)
			}
		}
	}
	return out
}

func (mo *model) cpusets() map[string]string {
	out := map[string]string{}
	for _, c := range mo.live() {
		if c.started {
			out[c.dir()] = mo.effective(c)
		}
	}
	return out
}

// effective reads a container's cpuset from the kernel's own files.
func (mo *model) effective(c *modelCtr) string {
	if mo.version == cgroup.V1 {
		return mo.read("cpuset/" + c.dir() + "/cpuset.effective_cpus")
	}
	return mo.read(c.dir() + "/cpuset.cpus.effective")
}

// memory is like effective, for a container's memory nodes.
func (mo *model) memory(c *modelCtr) string {
	if mo.version == cgroup.V1 {
		return mo.read("cpuset/" + c.dir() + "/cpuset.effective_mems")
	}
	return mo.read(c.dir() + "/cpuset.mems.effective")
}

func (mo *model) read(file string) string {
	text, err := mo.kernel.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
