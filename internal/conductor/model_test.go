package conductor_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// model is a runtime and a kernel in small: it keeps specs as containerd does,
// applies answers, and makes cgroups when containers start. It imports nothing
// of how decisions are made; the invariants are checked on what it holds.
type model struct {
	kernel  *cgroup.Fake
	version cgroup.Version
	machine *topology.Machine
	policy  engine.Policy
	con     *conductor.Conductor
	pods    []*modelPod
	ratio   hook.Ratio          // of CPU normalization
	taking  map[string]string   // cpusets as they were, while a restart without records is taken over
	proxied bool                // events come as a CRI proxy tells them
	between func()              // happens while the runtime creates a container
	liar    conductor.Outsiders // a hook server; nil for none
	n       int
	faults  faults
	broken  []string
	writes  int
	journal *memory // what was there before, over restarts; nil for none
	log     io.Writer
	from    conductor.Carrier
	// foreign: it is the runtime that writes, which an attachment beside it
	// cannot forestall. It is judged when the agent was told of it.
	foreign bool
	// dress makes a pod of the policy pools of a plain one; nil where that is
	// off.
	dress func(*modelPod)
	// lending: CPUs were lent before the configuration that is being settled.
	lending bool
	// held are the CPUs owners had before a resize, by cgroup: as long as the
	// kernel shows them nobody else has one of them.
	held map[string]string
	// unsaved: checkpoints are lost at each restart, and records are not.
	unsaved bool
	// creating is what the runtime is creating, and granted are the grants before
	// it: two containers of one name are told apart by that alone.
	creating *modelCtr
	granted  map[string]bool
	// once: no container is created while one of its name runs, as a kubelet has it.
	once bool
}

// faults are planted errors: each must make its invariant's check fail.
type faults struct {
	forgetShrink bool // others keep the CPUs that are given away (I1)
	lateShrink   bool // others lose them only after the container has started (I1)
	emptyCPUSet  bool // an answer carries an empty CPU list (I2)
	dropValue    bool // a decided value is carried nowhere (I3)
	loseRecord   bool // records do not survive a restart (I4)
	touchSilent  bool // pods without intent are given something (I5)
	keepGrant    bool // a pod's end does not free its CPUs (I4)
	forgetAsked  bool // neither records nor the checkpoint survive a restart (I4, quotas)
}

type modelPod struct {
	lifecycle.Pod
	asked   string // CPUs its annotation assigns
	stopped bool
	ctrs    []*modelCtr
	wants   lifecycle.Resources // of each container, where the pod is dressed
}

type modelCtr struct {
	lifecycle.Container
	pod     *modelPod
	started bool
	ended   bool
	// asked are the resources before any answer.
	asked lifecycle.Resources
}

// carrier carries what NRI carries.
type carrier struct{}

func (carrier) Name() string  { return "model" }
func (carrier) About() string { return "a model" }
func (carrier) Carries(k lifecycle.Kind, f lifecycle.Field) bool {
	if k == lifecycle.CreateContainer {
		return true
	}
	return k == lifecycle.UpdateContainer && f <= lifecycle.MemoryLimit
}

// proxy carries what a CRI proxy does, and holds starts.
type proxy struct{ carrier }

// outsider carries nothing, as bypass.
type outsider struct{}

func (outsider) Name() string                                 { return "model" }
func (outsider) About() string                                { return "" }
func (outsider) Carries(lifecycle.Kind, lifecycle.Field) bool { return false }
func (outsider) Copies(f lifecycle.Field) bool                { return f <= lifecycle.MemoryLimit }

// HoldsStart is true of a proxy alone.
func (proxy) HoldsStart() bool { return true }

// beside reports whether the model is told of things after they happened.
func (mo *model) beside() bool { return mo.from == conductor.Carrier(outsider{}) }

func newModel(t testing.TB, v cgroup.Version, f faults) *model {
	t.Helper()
	var cpus []topology.CPU
	for i := range 8 {
		cpus = append(cpus, topology.CPU{ID: i, Core: i / 2, Node: i / 4})
	}
	m, err := topology.New(cpus, map[int]uint64{0: 1 << 30, 1: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := cgroup.NewFake(v, "0-7", "0-1")
	if err != nil {
		t.Fatal(err)
	}
	if err := kernel.MkdirRunc("kubepods"); err != nil {
		t.Fatal(err)
	}
	mo := &model{from: carrier{}, log: io.Discard, kernel: kernel, version: v, machine: m, faults: f}
	mo.policy = engine.Policy{
		Dialects: []string{"koordinator", "katalyst", "rubik", "kubernetes"}, Place: true,
		Pools: placement.Pools{Online: m.Online(), Shared: m.Online(), Reclaimed: m.Online()},
		Rules: intent.Rules{{Kinds: []intent.Kind{"*"}, Namespaces: []string{"*"}, Decision: intent.Allow}},
	}
	mo.normalize(100)
	kernel.OnWrite(func(string, string) { mo.writes++; mo.checkExclusive("at a write") })
	mo.boot()
	return mo
}

// boot starts an agent that knows nothing.
func (mo *model) boot() {
	var fsys cgroup.FS = mo.kernel
	if mo.faults.forgetShrink || mo.faults.lateShrink {
		fsys = deafFS{mo.kernel}
	}
	var saved []byte
	if mo.con != nil && !mo.faults.forgetAsked && !mo.unsaved {
		saved = mo.con.Checkpoint()
	}
	k := keeper.New(&cgroup.Tree{FS: fsys, Version: mo.version})
	if mo.journal != nil {
		var earlier []byte
		if mo.con != nil {
			earlier = append([]byte{}, mo.journal.Bytes()...)
		}
		must(k.Keep(mo.journal, earlier))
	}
	mo.con = conductor.New(conductor.Options{
		Checkpoint: saved, Outsiders: mo.liar,
		Machine: mo.machine, Policy: mo.policy,
		Keeper: k,
		Key:    []byte("a key of the test, 32 bytes long"), Log: slog.New(slog.NewTextHandler(mo.log, nil)),
		Now: func() time.Time { return time.Unix(0, 0) },
	})
}

// normalize switches CPU normalization to a ratio.
func (mo *model) normalize(ratio hook.Ratio) {
	mo.ratio = ratio
	mo.policy.Hooks = []hook.Hook{hook.CPUSet{UnsetQuota: true}, hook.Batch{}, hook.GPU{}, hook.Normalization{Ratio: ratio},
		hook.GroupIdentity{LSR: 2, LS: 2, BE: -1, Fallback: hook.FallbackWeight, BVT: lifecycle.NotSupported},
		hook.Burst{}, hook.Preemption{Yield: hook.YieldIdle},
	}
}

// burst is what every third pod asks for, in µs.
const burst = 60000

// checkQuotas checks that quotas are scaled once from what was asked, whatever
// happened in between. It computes them by itself.
func (mo *model) checkQuotas(when string) {
	if mo.dress != nil {
		return // owners are many here, and whose quota is lifted is not this check's
	}
	for _, c := range mo.live() {
		class := c.pod.Labels["koordinator.sh/qosClass"]
		_, assigned := c.pod.Annotations[intent.KoordResourceStatus]
		if !c.started || c.asked.CPU.Quota.V == 0 || assigned || (class != "" && class != "LS" && class != "nonsense") {
			continue
		}
		want := c.asked.CPU.Quota.V
		if mo.ratio > 100 {
			want = int64(math.Ceil(float64(want) * 100 / float64(mo.ratio)))
		}
		quota, _, err := (&cgroup.Tree{FS: mo.kernel, Version: mo.version}).ReadBandwidth(c.dir())
		must(err)
		mo.checkBurst(when, c, want)
		if quota != fmt.Sprint(want) {
			mo.wrong("I4: %s: %s asked for a quota of %d at ratio %s and has %s, wanted %d", when, c.ID, c.asked.CPU.Quota.V, mo.ratio, quota, want)
		}
	}
}

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
	mo.con.Settled() // a Synchronize is answered before it is applied
	if mo.proxied {  // a proxy does what any answer says; NRI's have a place for it in some
		mo.others(ans)
	}
	return ans, err == nil
}

func (mo *model) runPod(class, asked, extended string) *modelPod {
	mo.n++
	uid := fmt.Sprintf("uid-%d", mo.n)
	p := &modelPod{asked: asked, Pod: lifecycle.Pod{
		ID: fmt.Sprintf("sandbox-%d", mo.n), Name: fmt.Sprintf("p%d", mo.n), UID: uid, Namespace: "default",
		Labels: map[string]string{}, Annotations: map[string]string{}, CgroupParent: "/kubepods/pod" + uid,
	}}
	if class != "" {
		p.Labels["koordinator.sh/qosClass"] = class
	}
	if asked != "" {
		p.Annotations["scheduling.koordinator.sh/resource-status"] = fmt.Sprintf(`{"cpuset":%q}`, asked)
	}
	if extended != "" {
		p.Annotations["node.koordinator.sh/extended-resource-spec"] = extended
	}
	if mo.dress != nil {
		mo.dress(p)
	}
	if mo.n%3 == 0 {
		p.Annotations[intent.RubikBurst] = fmt.Sprint(burst)
		if p.Labels["koordinator.sh/qosClass"] == "BE" {
			p.Annotations[intent.RubikPreemptable] = "true"
		}
	}
	must(mo.kernel.MkdirRunc("kubepods/pod" + uid))
	mo.pods = append(mo.pods, p)
	mo.handle(lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: clone(&p.Pod)})
	return p
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func clone[T any](v *T) *T { c := *v; return &c }

func (mo *model) create(p *modelPod, name string) *modelCtr {
	// The kubelet creates a container again only where the last creation came
	// to nothing or the container has ended.
	p.ctrs = slices.DeleteFunc(p.ctrs, func(c *modelCtr) bool { return c.Name == name && !c.started && !c.ended })
	mo.n++
	c := &modelCtr{pod: p, Container: lifecycle.Container{
		ID: fmt.Sprintf("ctr-%d", mo.n), PodID: p.ID, Name: name, State: lifecycle.StateCreated,
		CgroupsPath: fmt.Sprintf("%s/ctr-%d", p.CgroupParent, mo.n), CreatedAt: int64(mo.n),
	}}
	c.Resources.CPU.Shares = lifecycle.Some[uint64](2)
	if p.Labels["koordinator.sh/qosClass"] != "BE" && mo.n%3 == 0 {
		c.Resources.CPU.Quota = lifecycle.Some(int64(50000 + mo.n))
	}
	if mo.dress != nil {
		c.Resources = p.wants
	}
	c.asked = c.Resources
	asked := clone(&c.Container)
	if mo.proxied { // neither is known before the runtime has it
		asked.ID, asked.CgroupsPath = "creating-"+c.ID, ""
	}
	mo.creating, mo.granted = c, mo.grants()
	ans, ok := mo.handle(lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: clone(&p.Pod), Container: asked})
	mo.creating = nil
	if !ok {
		return nil
	}
	if mo.faults.touchSilent && len(ans.Values) == 0 {
		ans.Values = []lifecycle.Value{{Field: lifecycle.Env, Key: "TRIMTAB", Text: "1"}}
	}
	mo.silent(c, ans)
	mo.apply(c, ans.Values)
	mo.others(ans)
	p.ctrs = append(p.ctrs, c)
	if mo.proxied {
		if between := mo.between; between != nil {
			mo.between = nil
			between()
		}
		mo.handle(lifecycle.Event{Kind: lifecycle.PostCreateContainer, Pod: clone(&p.Pod), Container: clone(&c.Container), Former: asked.ID})
	}
	return c
}

// silent checks I5: nobody asked anything, so nothing but CPUs others own may
// be missing.
func (mo *model) silent(c *modelCtr, ans conductor.Answer) {
	if mo.liar != nil || mo.dress != nil || len(c.pod.Labels)+len(c.pod.Annotations) > 0 || mo.policy.UnlabelledShared || mo.ratio > 100 {
		return
	}
	owned := len(mo.con.Status().CPUs.Grants) > 0
	for _, v := range ans.Values {
		if v.Field == lifecycle.Annotation || (owned && v.Field == lifecycle.CPUSetCPUs) {
			if owned {
				continue
			}
		}
		mo.wrong("I5: %s has no intent and was given %s %s", c.ID, v.Field, v)
	}
}

func (mo *model) apply(c *modelCtr, values []lifecycle.Value) {
	for _, v := range values {
		if mo.faults.emptyCPUSet && v.Field == lifecycle.CPUSetCPUs {
			v.Text = ""
		}
		if mo.faults.dropValue && v.Field == lifecycle.CPUShares {
			continue
		}
		switch v.Field {
		case lifecycle.CPUShares:
			c.Resources.CPU.Shares = lifecycle.Some(uint64(v.Int))
		case lifecycle.CPUQuota:
			c.Resources.CPU.Quota = lifecycle.Some(v.Int)
		case lifecycle.MemoryLimit:
			c.Resources.Memory.Limit = lifecycle.Some(v.Int)
		case lifecycle.CPUSetCPUs:
			c.Resources.CPU.CPUs = v.Text
			if v.Text == "" {
				mo.wrong("I2: %s was answered an empty CPU list", c.ID)
			}
		case lifecycle.Unified:
			c.Resources.Unified = map[string]string{v.Key: v.Text}
		case lifecycle.Env:
			c.Env = append(c.Env, v.Key+"="+v.Text)
		case lifecycle.Annotation:
			if !mo.faults.loseRecord && !mo.faults.forgetAsked {
				c.Annotations = map[string]string{v.Key: v.Text}
			}
		}
	}
}

func (mo *model) others(ans conductor.Answer) {
	for _, s := range ans.Others {
		for _, c := range mo.live() {
			if c.ID == s.Container {
				mo.apply(c, s.Values)
			}
		}
	}
}

func (c *modelCtr) dir() string { return strings.TrimPrefix(c.CgroupsPath, "/") }

// start makes the cgroup as runc does, sends the event, and lets the first
// instruction run.
func (mo *model) start(c *modelCtr) {
	if c.started || c.ended {
		return
	}
	mo.foreign = mo.beside()
	if !mo.proxied {
		must(mo.kernel.MkdirRunc(c.dir()))
		mo.toKernel(c)
	}
	mo.handle(lifecycle.Event{Kind: lifecycle.StartContainer, Pod: clone(&c.pod.Pod), Container: clone(&c.Container)})
	if mo.proxied { // the cgroup comes with the start, after what the answer changes
		must(mo.kernel.MkdirRunc(c.dir()))
		mo.toKernel(c)
	}
	mo.foreign = false
	c.started, c.State = true, lifecycle.StateRunning
	must(mo.kernel.SetTasks(c.dir(), 1))
	mo.checkExclusive("at the first instruction of " + c.ID)
	mo.checkQuotas("at the first instruction of " + c.ID)
	if mo.proxied {
		mo.handle(lifecycle.Event{Kind: lifecycle.PostStartContainer, Pod: clone(&c.pod.Pod), Container: clone(&c.Container)})
	}
	mo.checkValues(c)
}

// toKernel writes a spec's resources, as an OCI runtime does.
func (mo *model) toKernel(c *modelCtr) {
	tree := &cgroup.Tree{FS: mo.kernel, Version: mo.version}
	r := c.Resources
	write := func(f lifecycle.Field, v lifecycle.Value) {
		v.Field = f
		_ = tree.Write(c.dir(), v) // a runtime would fail the start; the check after it tells
	}
	if r.CPU.CPUs != "" {
		write(lifecycle.CPUSetCPUs, lifecycle.Value{Text: r.CPU.CPUs})
	}
	if r.CPU.Shares.Set {
		write(lifecycle.CPUShares, lifecycle.Value{Int: int64(r.CPU.Shares.V)})
	}
	if r.CPU.Quota.Set {
		write(lifecycle.CPUQuota, lifecycle.Value{Int: r.CPU.Quota.V})
	}
	if r.Memory.Limit.Set {
		write(lifecycle.MemoryLimit, lifecycle.Value{Int: r.Memory.Limit.V})
	}
	for key, text := range r.Unified { // passed over in version 1
		if mo.version == cgroup.V2 {
			write(lifecycle.Unified, lifecycle.Value{Key: key, Text: text})
		}
	}
}

// update is UpdateContainerResources: the answer replaces the request, and the
// whole stored spec goes to the kernel, as in containerd.
func (mo *model) update(c *modelCtr, r lifecycle.Resources) {
	if mo.beside() {
		mo.updateUnasked(c, r)
		return
	}
	ans, ok := mo.handle(lifecycle.Event{
		Kind: lifecycle.UpdateContainer, Pod: clone(&c.pod.Pod), Container: clone(&c.Container), Requested: clone(&r),
	})
	if !ok {
		return
	}
	if r.CPU.CPUs != "" {
		c.Resources.CPU.CPUs, c.asked.CPU.CPUs = r.CPU.CPUs, r.CPU.CPUs
	}
	if r.CPU.Quota.Set {
		c.Resources.CPU.Quota, c.asked.CPU.Quota = r.CPU.Quota, r.CPU.Quota
	}
	if r.CPU.Shares.Set {
		c.Resources.CPU.Shares, c.asked.CPU.Shares = r.CPU.Shares, r.CPU.Shares
	}
	mo.apply(c, ans.Values)
	mo.others(ans)
	if c.started && !c.ended {
		mo.toKernel(c)
		mo.checkExclusive("after an update of " + c.ID)
		mo.checkQuotas("after an update of " + c.ID)
		mo.checkValues(c)
	}
}

// updateUnasked is an update nobody asked us about: we see it afterwards.
func (mo *model) updateUnasked(c *modelCtr, r lifecycle.Resources) {
	mo.foreign = true
	for _, into := range []*lifecycle.Resources{&c.Resources, &c.asked} {
		if r.CPU.CPUs != "" {
			into.CPU.CPUs = r.CPU.CPUs
		}
		if r.CPU.Quota.Set {
			into.CPU.Quota = r.CPU.Quota
		}
		if r.CPU.Shares.Set {
			into.CPU.Shares = r.CPU.Shares
		}
	}
	live := c.started && !c.ended
	if live {
		mo.toKernel(c)
	}
	mo.handle(lifecycle.Event{
		Kind: lifecycle.UpdateContainer, Pod: clone(&c.pod.Pod), Container: clone(&c.Container), Requested: clone(&r),
	})
	mo.foreign = false
	if live {
		mo.checkExclusive("after an update of " + c.ID)
		mo.checkQuotas("after an update of " + c.ID)
		mo.checkValues(c)
	}
}

func (mo *model) stop(c *modelCtr) {
	if c.ended {
		return
	}
	c.ended, c.State = true, lifecycle.StateStopped
	if c.started {
		must(mo.kernel.SetTasks(c.dir(), 0))
		must(mo.kernel.Rmdir(c.dir()))
	}
	ans, _ := mo.handle(lifecycle.Event{Kind: lifecycle.StopContainer, Pod: clone(&c.pod.Pod), Container: clone(&c.Container)})
	mo.others(ans)
}

func (mo *model) remove(c *modelCtr) {
	mo.stop(c)
	c.pod.ctrs = slices.DeleteFunc(c.pod.ctrs, func(x *modelCtr) bool { return x == c })
	mo.handle(lifecycle.Event{Kind: lifecycle.RemoveContainer, Pod: clone(&c.pod.Pod), Container: clone(&c.Container)})
}

func (mo *model) stopPod(p *modelPod) {
	for _, c := range p.ctrs {
		mo.stop(c)
	}
	p.stopped = true
	if !mo.faults.keepGrant {
		mo.handle(lifecycle.Event{Kind: lifecycle.StopPodSandbox, Pod: clone(&p.Pod)})
	}
	mo.checkFree()
}

func (mo *model) removePod(p *modelPod) {
	mo.stopPod(p)
	mo.handle(lifecycle.Event{Kind: lifecycle.RemovePodSandbox, Pod: clone(&p.Pod)})
	mo.pods = slices.DeleteFunc(mo.pods, func(x *modelPod) bool { return x == p })
}

func (mo *model) grants() map[string]bool {
	out := map[string]bool{}
	for _, g := range mo.con.Status().CPUs.Grants {
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
	file := c.dir() + "/cpuset.cpus.effective"
	if mo.version == cgroup.V1 {
		file = "cpuset/" + c.dir() + "/cpuset.effective_cpus"
	}
	text, err := mo.kernel.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// checkExclusive checks I1 and I2 on the kernel's files. A container owns what
// its pod was assigned if the kernel shows just that for it after it started.
func (mo *model) checkExclusive(when string) {
	if mo.foreign {
		return
	}
	all := mo.live()
	for _, owner := range all {
		if !owner.started || owner.pod.asked == "" || mo.effective(owner) != canonical(owner.pod.asked) {
			continue
		}
		if mo.taking != nil && mo.taking[owner.dir()] != canonical(owner.pod.asked) {
			continue
		}
		own := idsOf(owner.pod.asked)
		for _, c := range all {
			cpus := mo.effective(c)
			// Nothing runs yet in a cgroup the runtime is still filling: where creations failed twice its spec has no set.
			if c.pod == owner.pod || cpus == "" || !c.started || !mo.owns(owner) {
				continue
			}
			if shared := intersect(own, idsOf(cpus)); len(shared) > 0 {
				mo.wrong("I1: %s: %s has CPUs %v of %s", when, c.ID, shared, owner.ID)
			}
		}
	}
	if mo.dress != nil {
		mo.checkGrants(when, all)
	}
	for _, c := range all {
		if c.started && mo.effective(c) == "" {
			mo.wrong("I2: %s: %s has no CPU", when, c.ID)
		}
	}
}

func (mo *model) owns(c *modelCtr) bool {
	grant := "default/" + c.pod.Name + "/" + c.Name + " " + canonical(c.pod.asked)
	return mo.grants()[grant] && !mo.another(c, grant)
}

// another reports whether a grant is of a container of the same name that is
// being created, not of this one.
func (mo *model) another(c *modelCtr, grant string) bool {
	return mo.creating != nil && mo.creating.pod == c.pod && mo.creating.Name == c.Name && !mo.granted[grant]
}

// checkBurst checks that a container starts with the burst its pod asked for, and
// has none above its quota ever. What a larger quota lets it have comes later.
func (mo *model) checkBurst(when string, c *modelCtr, quota int64) {
	want := int64(0)
	if c.pod.Annotations[intent.RubikBurst] == fmt.Sprint(burst) {
		want = min(burst, quota)
	}
	text, err := (&cgroup.Tree{FS: mo.kernel, Version: mo.version}).Read(c.dir(), lifecycle.Unified, "cpu.max.burst")
	must(err)
	got, err := strconv.ParseInt(text, 10, 64)
	must(err)
	// A proxy's runtime passes over it in version 1: it is written after the start.
	starts := strings.HasPrefix(when, "at the first") && (!mo.proxied || mo.version == cgroup.V2)
	if got > want || starts && got != want {
		mo.wrong("I3: %s: %s has a burst of %d at a quota of %d, wanted %d", when, c.ID, got, quota, want)
	}
}

// checkValues checks I3: what explain calls applied, the kernel has.
func (mo *model) checkValues(c *modelCtr) {
	found, _ := mo.con.Explain("default", c.pod.Name, c.Name)
	tree := &cgroup.Tree{FS: mo.kernel, Version: mo.version}
	for _, e := range found {
		if e.ID != c.ID {
			continue
		}
		for _, v := range e.Values {
			var f lifecycle.Field
			if f.UnmarshalText([]byte(v.Field)) != nil || f > lifecycle.MemoryLimit {
				continue
			}
			value := lifecycle.Value{Field: f, Text: v.Value}
			if f.Numeric() {
				value.Text = ""
				fmt.Sscan(v.Value, &value.Int)
			}
			want, err := cgroup.Encode(mo.version, value)
			must(err)
			got, err := tree.Read(c.dir(), f, "")
			must(err)
			if v.Applied && !tree.Same(f, "", got, want) {
				mo.wrong("I3: explain says %s of %s is %s (%s); the kernel says %s", f, c.ID, v.Value, v.Channel, got)
			}
			if !v.Applied && v.Note == "" {
				mo.wrong("I3: %s of %s is not applied, and nothing says why", f, c.ID)
			}
		}
	}
}

// checkFree checks that CPUs of pods that ended are free again.
func (mo *model) checkFree() {
	for _, g := range mo.con.Status().CPUs.Grants {
		for _, p := range mo.pods {
			if p.stopped && g.Pod == "default/"+p.Name {
				mo.wrong("I4: %s ended and still owns CPUs %s", g.Pod, g.CPUs)
			}
		}
	}
}

func idsOf(list string) []int {
	ids, err := topology.ParseList(list)
	must(err)
	return ids
}

func canonical(list string) string { return topology.FormatList(idsOf(list)) }

func intersect(a, b []int) []int {
	var out []int
	for _, x := range a {
		if slices.Contains(b, x) {
			out = append(out, x)
		}
	}
	return out
}

func (s string2set) set(mo *model) topology.Set {
	set, err := mo.machine.ParseCPUs(string(s))
	must(err)
	return set
}
