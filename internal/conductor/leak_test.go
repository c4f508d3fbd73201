package conductor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/facts"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/numahints"
	"github.com/trimtab/trimtab/internal/topology"
)

// unitKey marks a pod whose containers need one unit of the plugin's resource each.
const unitKey = "test/unit"

// unitPlugin is a resource plugin with two units on each NUMA node. It has what it allocated until the
// agent releases it.
type unitPlugin struct {
	nodes []int // ids

	mu   sync.Mutex                // pods are decided ahead at the same time
	has  map[string]map[string]int // NUMA node by pod UID and container
	made map[string]bool           // pods with a container that was created
}

const unitsPerNode = 2

func (u *unitPlugin) Question(pod *lifecycle.Pod, ctr *lifecycle.Container, _ *lifecycle.PodSpec, ahead bool) facts.Question {
	if pod.Annotations[unitKey] == "" {
		return nil
	}
	return unitQuestion{u, pod.UID, ctr.Name, ahead}
}

func (*unitPlugin) PreStart(context.Context, *lifecycle.Pod, *lifecycle.Container) []lifecycle.Problem {
	return nil
}

func (u *unitPlugin) Remove(uid string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.has, uid)
	delete(u.made, uid)
}

func (u *unitPlugin) ReleaseIfNotCreated(uid string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.made[uid] {
		delete(u.has, uid)
	}
}
func (*unitPlugin) Values(string) map[string][]lifecycle.Value { return nil }

func (u *unitPlugin) ReleaseEnded(live map[string]bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.has, func(uid string, _ map[string]int) bool { return !live[uid] })
	maps.DeleteFunc(u.made, func(uid string, _ bool) bool { return !live[uid] })
}

// free returns the NUMA nodes where a container can have a unit. The caller holds mu.
func (u *unitPlugin) free(uid, name string) (free []int) {
	if at, has := u.has[uid][name]; has {
		return []int{at}
	}
	used := map[int]int{}
	for _, of := range u.has {
		for _, at := range of {
			used[at]++
		}
	}
	return slices.DeleteFunc(slices.Clone(u.nodes), func(at int) bool { return used[at] >= unitsPerNode })
}

type unitQuestion struct {
	u         *unitPlugin
	uid, name string
	ahead     bool
}

func (q unitQuestion) Hints(context.Context) ([]lifecycle.ResourceHints, []lifecycle.Problem) {
	q.u.mu.Lock()
	defer q.u.mu.Unlock()
	h := lifecycle.ResourceHints{Resource: "unit", Hints: []lifecycle.NUMAHint{}}
	for _, at := range q.u.free(q.uid, q.name) {
		h.Hints = append(h.Hints, lifecycle.NUMAHint{Nodes: []int{at}, Preferred: true})
	}
	return []lifecycle.ResourceHints{h}, nil
}

func (q unitQuestion) Allocate(_ context.Context, at *lifecycle.Affinity) (lifecycle.HookServerAnswer, error) {
	q.u.mu.Lock()
	defer q.u.mu.Unlock()
	free := q.u.free(q.uid, q.name)
	if at != nil && len(at.Nodes) > 0 {
		free = slices.DeleteFunc(free, func(node int) bool { return !slices.Contains(at.Nodes, node) })
	}
	if len(free) == 0 {
		return lifecycle.HookServerAnswer{}, errors.New("no unit is free")
	}
	if q.u.has[q.uid] == nil {
		q.u.has[q.uid] = map[string]int{}
	}
	q.u.has[q.uid][q.name] = free[0]
	q.u.made[q.uid] = q.u.made[q.uid] || !q.ahead
	return lifecycle.HookServerAnswer{}, nil
}

// holdingNode is a node where pods hold CPUs, CDI devices and a plugin's units, some before a runtime reports them.
type holdingNode struct {
	*foreseen

	units  *unitPlugin
	counts map[string]int
	// tried are the containers that were to be created and are not removed: a kubelet tries again.
	tried map[placement.Key]bool
	ended map[string]bool // pods, by UID
	// since is when the present agent heard of a pod first.
	since   map[string]time.Time
	sinceBy *conductor.Conductor
}

func newHoldingNode(outer testing.TB, t *rapid.T, counts map[string]int) *holdingNode {
	outer.Helper()
	m := eight(outer)
	if rapid.Bool().Draw(t, "odd machine") {
		m = anyMachine(t)
	}
	mo := newPooledOn(outer, m, cgroup.V2, faults{}, rapid.IntRange(0, 199).Draw(t, "seed"))
	h := &holdingNode{
		foreseen: &foreseen{mo: mo, now: time.Unix(0, 0), pending: map[string]engine.PlannedPod{}, counts: counts},
		units:    &unitPlugin{has: map[string]map[string]int{}, made: map[string]bool{}}, counts: counts,
		tried: map[placement.Key]bool{}, ended: map[string]bool{}, since: map[string]time.Time{},
	}
	for _, n := range mo.machine.Nodes {
		h.units.nodes = append(h.units.nodes, n.ID)
	}
	mo.plugins, mo.now = h.units, func() time.Time { return h.now }
	for i := range int64(4) {
		mo.devices = append(mo.devices, lifecycle.NodeDevice{Name: fmt.Sprint("v.com/gpu=", i), Nodes: []lifecycle.Device{{Path: fmt.Sprint("/dev/gpu", i), Type: "c", Major: 195, Minor: i}}})
	}
	mo.normalize(100)
	mo.policy.Dialects = intent.Dialects()
	mo.policy.Topology = engine.TopologyManager{
		Policy:          rapid.SampledFrom([]numahints.Policy{numahints.SingleNode, numahints.SingleNode, numahints.Restricted, numahints.None}).Draw(t, "policy"),
		RefuseUnaligned: true, PodScope: rapid.Bool().Draw(t, "scope pod"),
	}
	mo.policy.FatalHooks = map[string]bool{"cdiDevices": rapid.Bool().Draw(t, "devices are required")}
	plain := mo.dress
	mo.dress = func(p *modelPod) {
		plain(p)
		if mo.n%2 == 0 {
			p.Annotations[intent.TrimtabCDIDevices] = fmt.Sprintf(`{"a":{"v.com/gpu":%d},"b":{"v.com/gpu":1}}`, 1+mo.n%3)
		}
		if mo.n%3 > 0 {
			p.Annotations[unitKey] = "1"
		}
	}
	mo.seen = h.see
	mo.boot()
	mo.handle(mo.everything())
	return h
}

// see notes which containers the kubelet wants, and counts creations.
func (h *holdingNode) see(ev *lifecycle.Event, _ conductor.Answer, err error) {
	if ev.Kind == lifecycle.StopPodSandbox {
		h.ended[ev.Pod.UID] = true
	}
	if ev.Container == nil {
		return
	}
	key := placement.Key{PodUID: ev.Pod.UID, Container: ev.Container.Name}
	switch ev.Kind {
	case lifecycle.RemoveContainer:
		if !slices.ContainsFunc(h.mo.pods, func(p *modelPod) bool {
			return p.UID == key.PodUID && slices.ContainsFunc(p.ctrs, func(c *modelCtr) bool { return c.Name == key.Container })
		}) {
			delete(h.tried, key)
		}
	case lifecycle.CreateContainer:
		h.tried[key] = true
		if h.counts["created"]++; err != nil {
			h.counts["refused"]++
		}
	default:
	}
}

// foresee is one random thing that a kubelet does before the runtime knows of it.
func (h *holdingNode) foresee(t testing.TB, p *modelPod, guess int) {
	t.Helper()
	switch {
	case guess < 6:
		h.pending[p.UID] = plan(p)
	case guess == 7:
		h.never()
	case guess == 8:
		h.now = h.now.Add(aheadTimeout)
	case guess == 9 && len(h.pending) > 0:
		uid := slices.Sorted(maps.Keys(h.pending))[0]
		delete(h.since, uid) // a changed pod is another one
		if h.change(uid); len(h.mo.pods)%2 == 0 {
			delete(h.pending, uid)
		}
	}
	h.settle(t)
	if guess%2 == 0 {
		delete(h.pending, p.UID)
	}
}

// settle lets the agent hear of the pods that the kubelet knows, and waits for what an earlier agent expected.
func (h *holdingNode) settle(t testing.TB) {
	t.Helper()
	fresh := h.sinceBy != h.mo.con
	if fresh {
		h.sinceBy, h.since = h.mo.con, map[string]time.Time{}
		// The present agent knows which pods have ended, whatever a late source says. A new one asks the source.
		maps.DeleteFunc(h.pending, func(uid string, _ engine.PlannedPod) bool { return h.ended[uid] })
	}
	for uid := range h.pending {
		if _, known := h.since[uid]; !known {
			h.since[uid] = h.now
		}
	}
	maps.DeleteFunc(h.since, func(uid string, _ time.Time) bool { _, is := h.pending[uid]; return !is })
	h.round(t)
	if fresh {
		h.now = h.now.Add(10 * time.Second)
		h.round(t)
	}
}

// failed is a creation that the runtime gives up after the agent's answer. The runtime reports its end, or the kubelet
// tries again.
func (h *holdingNode) failed(s step) {
	var open []*modelCtr
	for _, c := range h.mo.live() {
		if !c.started {
			open = append(open, c)
		}
	}
	if len(open) == 0 {
		return
	}
	c := open[s.A%len(open)]
	c.pod.ctrs = slices.DeleteFunc(c.pod.ctrs, func(x *modelCtr) bool { return x == c })
	h.counts["failed"]++
	if s.B%2 == 0 {
		h.mo.handle(lifecycle.Event{Kind: lifecycle.RemoveContainer, Pod: clone(&c.pod.Pod), Container: clone(&c.Container)})
		return
	}
	h.mo.create(c.pod, c.Name) // nobody reports the failure, and the kubelet tries again
}

// owners are the pods that may have something: those that run, and those that are expected.
func (h *holdingNode) owners(l *conductor.Ledger) (may map[string]string) {
	may = map[string]string{}
	live := h.mo.livePods()
	for _, uid := range l.Expected {
		if live[uid] { // other containers of it have been created
			continue
		}
		since, pending := h.since[uid]
		switch {
		case !pending:
			h.mo.wrong("%s is expected, and the kubelet does not know it", uid)
		case h.now.Sub(since) >= aheadTimeout && h.settled():
			h.mo.wrong("%s is expected for %s", uid, h.now.Sub(since))
		}
		may[uid] = "expected"
	}
	for uid := range live {
		may[uid] = "live"
	}
	return may
}

// settled reports whether the present agent has heard of the pods that the kubelet knows.
func (h *holdingNode) settled() bool { return h.sinceBy == h.mo.con }

// check is the property: everything has one owner, and each owner is there.
func (h *holdingNode) check(after string) {
	l := conductor.LedgerOf(h.mo.con)
	may := h.owners(&l)
	wrong := func(format string, args ...any) { h.mo.wrong("after "+after+": "+format, args...) }
	var owned []placement.Grant
	for _, g := range append(l.Grants, l.Reserved...) {
		if may[g.Key.PodUID] == "" {
			wrong("CPUs %s belong to %v, which is not there", h.mo.machine.Format(g.CPUs), g.Key)
		}
		for _, other := range owned {
			// Some dialects give CPUs to all containers of a pod together.
			if twice := other.CPUs.And(g.CPUs); !twice.Empty() && (other.Key.PodUID != g.Key.PodUID || may[g.Key.PodUID] == "expected") {
				wrong("CPUs %s belong to %v and %v", h.mo.machine.Format(twice), other.Key, g.Key)
			}
		}
		owned = append(owned, g)
		h.counts["CPUs owned"]++
	}
	has := map[string]placement.Key{}
	for key, names := range l.Devices {
		if may[key.PodUID] == "" || may[key.PodUID] == "live" && !h.tried[key] && !slices.Contains(l.Expected, key.PodUID) {
			wrong("%v belong to %v, which is not there", names, key)
		}
		for _, name := range names {
			if other, twice := has[name]; twice {
				wrong("%s belongs to %v and %v", name, other, key)
			}
			has[name] = key
			h.counts["devices owned"]++
		}
	}
	for uid, of := range h.units.has {
		if _, pending := h.pending[uid]; may[uid] == "" && !pending {
			wrong("the plugin has %v for %s, which is not there", of, uid)
		}
		h.counts["units owned"]++
	}
}

// recovered compares the agent with one that has only what survives a restart: the runtime's list with its records, and
// the checkpoint. That agent writes nothing.
func (h *holdingNode) recovered(after string) {
	mo := h.mo
	k := keeper.New(&cgroup.Tree{FS: readOnlyFS{mo.kernel}, Version: mo.version})
	other := conductor.New(conductor.Options{
		Checkpoint: mo.con.Checkpoint().Text(), DecidesAhead: true, Machine: mo.machine, Policy: mo.policy, Keeper: k,
		Key: []byte("a key of the test, 32 bytes long"), Log: slog.New(slog.DiscardHandler), Now: mo.now,
		NodeDevices: func() []lifecycle.NodeDevice { return mo.devices },
	})
	_, _ = other.Handle(context.Background(), mo.from, mo.everything())
	other.Flush()
	if diff := cmp.Diff(h.holds(mo.con), h.holds(other)); diff != "" {
		mo.wrong("after %s: - live, + recovered\n%s", after, diff)
	}
	h.counts["recoveries"]++
}

// holds are the CPUs and devices of each pod that runs.
func (h *holdingNode) holds(c *conductor.Conductor) map[string][]string {
	l, out := conductor.LedgerOf(c), map[string][]string{}
	cpus := map[string]topology.Set{}
	for _, g := range append(l.Grants, l.Reserved...) {
		cpus[g.Key.PodUID] = cpus[g.Key.PodUID].Union(g.CPUs)
	}
	for uid, set := range cpus {
		out[uid] = append(out[uid], h.mo.machine.Format(set))
	}
	for key, names := range l.Devices {
		for _, name := range names {
			out[key.PodUID] = append(out[key.PodUID], key.Container+" "+name)
		}
	}
	live := h.mo.livePods()
	maps.DeleteFunc(out, func(uid string, _ []string) bool { return !live[uid] })
	for uid := range out {
		slices.Sort(out[uid])
	}
	return out
}

// livePods are the UIDs of the pods that the runtime has.
func (mo *model) livePods() map[string]bool {
	live := map[string]bool{}
	for _, p := range mo.pods {
		if !p.stopped {
			live[p.UID] = true
		}
	}
	return live
}

// readOnlyFS drops every write.
type readOnlyFS struct{ cgroup.FS }

func (readOnlyFS) WriteFile(string, []byte) error { return nil }

// TestNothingLeaks plays random histories of pods that own CPUs, CDI devices and a plugin's units, under policies of
// the topology manager that refuse some: pods decided ahead that come, change, are deleted or never start, failed
// creations, removed containers, new configurations and restarts. After each step everything has one owner that is
// there, and an agent that starts now would know the same.
func TestNothingLeaks(t *testing.T) {
	t.Parallel()
	counts := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		h := newHoldingNode(t, rt, counts)
		mo := h.mo
		guesses := rapid.SliceOfN(rapid.IntRange(0, 9), 61, 61).Draw(rt, "guesses")
		mo.arrives = func(p *modelPod) { h.foresee(t, p, guesses[len(mo.pods)%len(guesses)]) }
		for i, s := range steps().Draw(rt, "history") {
			if guesses[i%len(guesses)] == 0 {
				h.failed(s)
			}
			play(mo, []step{s})
			h.settle(t)
			after := fmt.Sprintf("step %d, %+v", i, s)
			h.check(after)
			h.recovered(after)
			if len(mo.broken) > 0 {
				rt.Fatalf("%v", mo.broken)
			}
		}
		h.pending = map[string]engine.PlannedPod{}
		h.settle(t)
		for _, p := range slices.Clone(mo.pods) {
			mo.removePod(p)
		}
		h.check("the end of all pods")
		if l := conductor.LedgerOf(mo.con); len(l.Grants)+len(l.Reserved)+len(l.Devices)+len(l.Expected)+len(h.units.has) > 0 {
			mo.wrong("nobody is there, and held are %+v and %v", l, h.units.has)
		}
		if len(mo.broken) > 0 {
			rt.Fatalf("%v", mo.broken)
		}
	})
	t.Log(counts)
	for _, what := range []string{"refused", "failed", "CPUs owned", "devices owned", "units owned", "recoveries"} {
		if counts[what] == 0 {
			t.Errorf("no history had: %s", what)
		}
	}
}
