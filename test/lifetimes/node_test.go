package lifetimes

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/coresched"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/none"
	"github.com/trimtab/trimtab/internal/report/metrics"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/topology"
)

// node is conductor, keeper and engine on a fake kernel, with pods that start and end.
type node struct {
	t       testing.TB
	rng     *rand.Rand
	kernel  *kernel.Cgroups
	keeper  *keeper.Keeper
	con     *conductor.Conductor
	metrics *metrics.Metrics
	made    int
	live    []*pod
}

// pod is a pod and its containers.
type pod struct {
	lifecycle.Pod
	ctrs []*container
	dir  string
}

type container struct {
	lifecycle.Container
}

// discarded is a journal that discards everything.
type discarded struct{}

func (discarded) Append([]byte) error  { return nil }
func (discarded) Replace([]byte) error { return nil }

// runtime accepts every update.
type runtime struct{}

func (runtime) Update(context.Context, []conductor.Settings) ([]string, error) { return nil, nil }
func (runtime) About() string                                                  { return "a runtime" }

// carrier is an attachment that can carry every field. With named it first reports containers by a name of its own.
type carrier struct{}

func (carrier) Name() string { return "test" }
func (carrier) Capabilities() conductor.Capabilities {
	return conductor.Capabilities{
		Name:       "test",
		Create:     lifecycle.FieldsWhere(func(lifecycle.Field) bool { return true }),
		Copy:       lifecycle.FieldsWhere(func(f lifecycle.Field) bool { return f <= lifecycle.MemoryLimit }),
		Piggybacks: true,
	}
}

func newNode(t testing.TB) *node {
	t.Helper()
	cpus := make([]topology.CPU, 8)
	for i := range cpus {
		cpus[i] = topology.CPU{ID: i, Node: i / 4}
	}
	m, err := topology.New(cpus, nil)
	must(t, err)
	n := &node{t: t, rng: rand.New(rand.NewPCG(1, 2))} //nolint:gosec // a test
	n.kernel, err = kernel.NewCgroups(cgroup.V2, "0-7", "0-1")
	must(t, err)
	must(t, n.kernel.MkdirRunc("kubepods"))
	n.keeper = keeper.New(&cgroup.Tree{FS: n.kernel, Version: cgroup.V2})
	must(t, n.keeper.Originals.Load(discarded{}, nil))
	n.keeper.RegisterActor(keeper.CoreSched{Groups: coresched.New(kernel.NewCookies())}, lifecycle.CoreSched)
	n.metrics = metrics.New(metrics.Build{}, metrics.KnownLabelValues{})
	n.con = conductor.New(conductor.Options{
		Machine: m, Keeper: n.keeper, Key: []byte("a key of the test, 32 bytes long"), Now: time.Now,
		Log: slog.New(slog.DiscardHandler), Recorder: n.metrics,
		Policy: engine.Policy{
			Dialects: []string{"koordinator", "katalyst", "rubik", "kubernetes"}, PlacementOn: true, Placement: none.Policy{},
			Pools: placement.Pools{Online: m.Online(), Shared: m.Online(), Reclaimed: m.Online()},
			Rules: intent.Rules{{Kinds: []intent.Kind{"*"}, Namespaces: []string{"*"}, Decision: intent.Allow}},
			Hooks: []hook.Hook{hook.CPUSetOptions{UnsetQuota: true}, hook.BatchOptions{}, hook.Burst{}, hook.Preemption{Yield: hook.YieldIdle},
				hook.GroupIdentity{LSR: 2, LS: 2, BE: -1, Fallback: hook.YieldWeight, KernelSupport: lifecycle.NotSupported}},
		},
	})
	n.con.Attached(carrier{}, runtime{})
	return n
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (n *node) handle(ev lifecycle.Event) {
	_, _ = n.con.Handle(n.t.Context(), carrier{}, ev)
	n.con.Flush()
}

// kinds are the kinds of pods, used in turn.
var kinds = []struct {
	class, cpus, extended string
	annotations           map[string]string
}{
	{class: "LSR", cpus: "2-3"}, {class: "LS"}, {}, {class: "BE", extended: `{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":"500"}}}}`},
	{class: "LSR", cpus: "5"}, {annotations: map[string]string{intent.RubikBurst: "60000"}}, {class: "nonsense"},
	{class: "LS", cpus: "0-63"}, {class: "LSE", cpus: "6-7"},
}

// run makes a pod with containers that run, or that are created and never started.
func (n *node) run() *pod {
	n.made++
	kind := kinds[n.made%len(kinds)]
	uid := fmt.Sprintf("uid-%d", n.made)
	p := &pod{dir: "kubepods/pod" + uid, Pod: lifecycle.Pod{
		ID: fmt.Sprintf("sandbox-%d", n.made), Name: fmt.Sprintf("p%d", n.made), UID: uid, Namespace: "default",
		Labels: map[string]string{}, Annotations: map[string]string{}, CgroupParent: "/kubepods/pod" + uid,
	}}
	if kind.class != "" {
		p.Labels[intent.KoordQoSClass] = kind.class
	}
	if kind.cpus != "" {
		p.Annotations[intent.KoordResourceStatus] = fmt.Sprintf(`{"cpuset":%q}`, kind.cpus)
	}
	if kind.extended != "" {
		p.Annotations["node.koordinator.sh/extended-resource-spec"] = kind.extended
	}
	for k, v := range kind.annotations {
		p.Annotations[k] = v
	}
	must(n.t, n.kernel.MkdirRunc(p.dir))
	n.handle(lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: &p.Pod})
	for range 1 + n.rng.IntN(2) {
		n.create(p, "a")
	}
	return p
}

// create makes a container of a pod. Some creations fail and are repeated; some runtimes name a container only later.
func (n *node) create(p *pod, name string) {
	n.made++
	id := fmt.Sprintf("ctr-%d", n.made)
	c := &container{Container: lifecycle.Container{ID: id, PodID: p.ID, Name: name, State: lifecycle.StateCreated, CgroupsPath: p.CgroupParent + "/" + id}}
	c.Resources.CPU.Shares = lifecycle.Some[uint64](512)
	c.Resources.CPU.Quota = lifecycle.Some[int64](200000)
	first := c.Container
	late := n.rng.IntN(4) == 0
	if late {
		first.ID, first.CgroupsPath = "attempt-"+id, ""
	}
	for range 1 + n.rng.IntN(3)/2 {
		n.handle(lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: &p.Pod, Container: &first})
	}
	if n.rng.IntN(16) == 0 {
		return // the creation failed, and the runtime does not report it
	}
	created := lifecycle.Event{Kind: lifecycle.PostCreateContainer, Pod: &p.Pod, Container: &c.Container}
	if late {
		created.Former = first.ID
	}
	n.handle(created)
	p.ctrs = append(p.ctrs, c)
	if n.rng.IntN(8) == 0 {
		return
	}
	dir := path.Join(p.dir, id)
	must(n.t, n.kernel.MkdirRunc(dir))
	c.State = lifecycle.StateRunning
	for _, k := range []lifecycle.Kind{lifecycle.StartContainer, lifecycle.PostStartContainer} {
		n.handle(lifecycle.Event{Kind: k, Pod: &p.Pod, Container: &c.Container})
	}
	if n.rng.IntN(4) == 0 {
		n.update(p, c)
	}
}

func (n *node) update(p *pod, c *container) {
	asked := &lifecycle.Resources{CPU: lifecycle.CPU{Shares: lifecycle.Some(uint64(100 + n.rng.IntN(900)))}}
	n.handle(lifecycle.Event{Kind: lifecycle.UpdateContainer, Pod: &p.Pod, Container: &c.Container, Requested: asked})
	n.handle(lifecycle.Event{Kind: lifecycle.PostUpdateContainer, Pod: &p.Pod, Container: &c.Container})
}

// remove removes the cgroups of a pod.
func (n *node) remove(p *pod) {
	for _, c := range p.ctrs {
		if c.State == lifecycle.StateRunning {
			must(n.t, n.kernel.Rmdir(path.Join(p.dir, c.ID)))
		}
	}
	must(n.t, n.kernel.Rmdir(p.dir))
}

// send sends an event of a pod, or one of each of its containers.
func (n *node) send(p *pod, k lifecycle.Kind) {
	if k == lifecycle.StopPodSandbox || k == lifecycle.RemovePodSandbox || k == lifecycle.UpdatePodSandbox {
		pod := p.Pod
		n.handle(lifecycle.Event{Kind: k, Pod: &pod})
		return
	}
	for _, c := range p.ctrs {
		pod, ctr := p.Pod, c.Container
		n.handle(lifecycle.Event{Kind: k, Pod: &pod, Container: &ctr, Requested: &lifecycle.Resources{}})
	}
}

// all returns a Synchronize with all pods and containers that exist.
func (n *node) all() {
	ev := lifecycle.Event{Kind: lifecycle.Synchronize}
	for _, p := range n.live {
		pod := p.Pod
		ev.Pods = append(ev.Pods, &pod)
		for _, c := range p.ctrs {
			ctr := c.Container
			ev.Containers = append(ev.Containers, &ctr)
		}
	}
	n.handle(ev)
}

// ends are the events by which runtimes report the end of a pod.
var ends = []lifecycle.Kind{lifecycle.StopContainer, lifecycle.RemoveContainer, lifecycle.StopPodSandbox, lifecycle.RemovePodSandbox}

// late are the events that may be in flight when a pod ends and that are handled after its end.
var late = []lifecycle.Kind{
	lifecycle.PostCreateContainer, lifecycle.StartContainer, lifecycle.PostStartContainer, lifecycle.UpdateContainer,
	lifecycle.PostUpdateContainer, lifecycle.UpdatePodSandbox, lifecycle.StopContainer, lifecycle.RemoveContainer, lifecycle.StopPodSandbox,
}

// orders returns all orders of the four end events.
func orders() [][]lifecycle.Kind {
	var out [][]lifecycle.Kind
	var add func(done, left []lifecycle.Kind)
	add = func(done, left []lifecycle.Kind) {
		if len(left) == 0 {
			out = append(out, done)
			return
		}
		for i := range left {
			rest := slices.Delete(slices.Clone(left), i, i+1)
			add(append(slices.Clone(done), left[i]), rest)
		}
	}
	add(nil, ends)
	return out
}

// end ends a pod with its end events in an order. Its cgroup is removed before, between or after them. Some events come
// twice, and some late ones follow. If silent, no event comes; only the cgroup is removed.
func (n *node) end(p *pod, order []lifecycle.Kind, silent bool) {
	gone := n.rng.IntN(len(order) + 1)
	if silent {
		time.Sleep(6 * time.Second) // a sweep finds the cgroup
	}
	for i, k := range order {
		if i == gone {
			n.remove(p)
		}
		if silent {
			continue
		}
		n.send(p, k)
		if n.rng.IntN(8) == 0 {
			n.send(p, k)
		}
	}
	if gone == len(order) {
		n.remove(p)
	}
	if !silent && n.rng.IntN(2) == 0 {
		n.send(p, late[n.rng.IntN(len(late))])
	}
}
