package bench

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/none"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// lifecycleTypes returns a unit's pod and container as the engine gets them.
func (u *unit) lifecycleTypes() (*lifecycle.Pod, *lifecycle.Container) {
	r := u.ctr.Linux.Resources.Cpu
	pod := &lifecycle.Pod{
		ID: u.pod.Id, Name: u.pod.Name, UID: u.pod.Uid, Namespace: u.pod.Namespace, Labels: u.pod.Labels,
		Annotations: u.pod.Annotations, CgroupParent: u.pod.Linux.CgroupParent,
	}
	return pod, &lifecycle.Container{
		ID: u.ctr.Id, PodID: pod.ID, Name: u.ctr.Name, CgroupsPath: u.ctr.Linux.CgroupsPath, State: lifecycle.StateRunning,
		CreatedAt: u.ctr.CreatedAt, Env: u.ctr.Env, Annotations: u.ctr.Annotations,
		Resources: lifecycle.Resources{CPU: lifecycle.CPU{
			Shares: lifecycle.Some(r.Shares.GetValue()), Quota: lifecycle.Some(r.Quota.GetValue()), Period: lifecycle.Some(r.Period.GetValue()),
		}},
	}
}

// node returns a state with n running containers, including owners of CPUs.
func node(b *testing.B, n int) *engine.State {
	b.Helper()
	m, err := describe.Parse(machine)
	if err != nil {
		b.Fatal(err)
	}
	all := m.Online()
	s := engine.NewState(m, engine.Policy{
		PlacementOn: true, Placement: none.Policy{}, Dialects: intent.Dialects(), Pools: placement.Pools{Online: all, Shared: all, Reclaimed: all},
		Hooks: []hook.Hook{hook.CPUSetOptions{UnsetQuota: true}, hook.BatchOptions{}, hook.GPU{}},
	})
	ev := &lifecycle.Event{Kind: lifecycle.Synchronize}
	for _, u := range population(n) {
		pod, ctr := u.lifecycleTypes()
		ev.Pods, ev.Containers = append(ev.Pods, pod), append(ev.Containers, ctr)
	}
	s.Commit(engine.Decide(s, ev, engine.Facts{}))
	return s
}

// BenchmarkDecide measures only the decision, with normal garbage collection and without any during a timed decision.
func BenchmarkDecide(b *testing.B) {
	s := table.section("engine.Decide of a CreateContainer", "existing", "garbage collection", "class", "calls", "p50", "p99")
	s.note = "The loop does arithmetic without allocations and is timed between the decisions: its p99 is the machine's noise.\n" +
		"\"between\": the heap is collected every " + fmt.Sprint(collectEvery) + " decisions, while none is timed."
	for _, n := range existing {
		for _, between := range []bool{false, true} {
			d := &decisions{node: node(b, n), gc: "as it comes", between: between}
			if between {
				d.gc = "between"
			}
			b.Run(fmt.Sprintf("%d/%s", n, d.gc), func(b *testing.B) { d.measure(b, s, n) })
		}
	}
}

// decisions is one way to time decisions.
type decisions struct {
	node    *engine.State
	gc      string
	between bool
	events  []*lifecycle.Event
}

// mostDecisions bounds the timed decisions, so that the samples are allocated in advance. collectEvery decisions leave
// less than 1 MB of garbage, and the first one after a collection is less than 1 % of the samples.
const mostDecisions, collectEvery = 1 << 18, 251

func (d *decisions) measure(b *testing.B, s *section, n int) {
	b.Helper()
	b.ReportAllocs()
	d.prepare()
	if d.between {
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
	}
	noise := make(sample, 0, mostDecisions)
	took := map[class]sample{batch: make(sample, 0, mostDecisions), shared: make(sample, 0, mostDecisions), exclusive: make(sample, 0, mostDecisions)}
	for i := 0; b.Loop(); i++ {
		if d.between && i%collectEvery == 0 {
			b.StopTimer()
			runtime.GC()
			b.StartTimer()
		}
		i := i % len(d.events)
		quiet := spin()
		start := time.Now()
		p := engine.Decide(d.node, d.events[i], engine.Facts{})
		t := time.Since(start)
		if c := classOf(i); p.Reject == "" && len(noise) < mostDecisions {
			noise, took[c] = append(noise, quiet), append(took[c], t)
		}
	}
	var all sample
	for c, name := range []string{"batch", "shared", "exclusive"} {
		t := took[class(c)]
		all = append(all, t...)
		s.row(n, d.gc, name, len(t), t.at(50), t.at(99))
	}
	s.row(n, d.gc, "all", len(all), all.at(50), all.at(99))
	s.row(n, d.gc, "a loop of that length", len(noise), noise.at(50), noise.at(99))
	b.ReportMetric(float64(all.at(99).Nanoseconds()), "p99-ns")
}

// prepare makes the events to decide, and adds their pods to the state.
func (d *decisions) prepare() {
	d.events = nil
	for i := range 200 {
		pod, ctr := newUnit(100000+i, classOf(i), firstFree+i/10%16).lifecycleTypes()
		d.node.Commit(engine.Decide(d.node, &lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: pod}, engine.Facts{}))
		d.events = append(d.events, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: ctr})
	}
}

var sink uint64

// spin does some microseconds of arithmetic and returns the time that it took.
func spin() time.Duration {
	start := time.Now()
	for i := range uint64(6000) {
		sink += i * i
	}
	return time.Since(start)
}
