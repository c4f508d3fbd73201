package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// words are a unit as the engine knows it.
func (u *unit) words() (*lifecycle.Pod, *lifecycle.Container) {
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

// node is a state in which n containers run, those with CPUs of their own among them.
func node(b *testing.B, n int) *engine.State {
	b.Helper()
	m, err := describe.Parse(machine)
	if err != nil {
		b.Fatal(err)
	}
	all := m.Online()
	s := engine.NewState(m, engine.Policy{
		Place: true, Dialects: intent.Dialects(), Pools: placement.Pools{Online: all, Shared: all, Reclaimed: all},
		Hooks: []hook.Hook{hook.CPUSet{UnsetQuota: true}, hook.Batch{}, hook.GPU{}},
	})
	ev := &lifecycle.Event{Kind: lifecycle.Synchronize}
	for _, u := range population(n) {
		pod, ctr := u.words()
		ev.Pods, ev.Containers = append(ev.Pods, pod), append(ev.Containers, ctr)
	}
	s.Commit(engine.Decide(s, ev, engine.Facts{}))
	return s
}

// BenchmarkDecide measures the decision alone.
func BenchmarkDecide(b *testing.B) {
	s := table.section("engine.Decide of a CreateContainer", "existing", "class", "calls", "p50", "p99")
	s.note = "The loop does arithmetic, allocates nothing and is timed between the decisions: its p99 is the machine's noise."
	for _, n := range existing {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			state := node(b, n)
			var events []*lifecycle.Event
			for i := range 200 {
				pod, ctr := newUnit(100000+i, classOf(i), firstFree+i/10%16).words()
				state.Commit(engine.Decide(state, &lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: pod}, engine.Facts{}))
				events = append(events, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: ctr})
			}
			took := map[class]sample{}
			var noise sample
			for i := 0; b.Loop(); i++ {
				noise = append(noise, spin())
				i := i % len(events)
				start := time.Now()
				p := engine.Decide(state, events[i], engine.Facts{})
				d := time.Since(start)
				if p.Reject == "" {
					took[classOf(i)] = append(took[classOf(i)], d)
				}
			}
			var all sample
			for c, name := range []string{"batch", "shared", "exclusive"} {
				t := took[class(c)]
				all = append(all, t...)
				s.row(n, name, len(t), t.at(50), t.at(99))
			}
			s.row(n, "all", len(all), all.at(50), all.at(99))
			s.row(n, "a loop of that length", len(noise), noise.at(50), noise.at(99))
			b.ReportMetric(float64(all.at(99).Nanoseconds()), "p99-ns")
		})
	}
}

var sink uint64

// spin is some microseconds of arithmetic, and tells how long it took.
func spin() time.Duration {
	start := time.Now()
	for i := range uint64(6000) {
		sink += i * i
	}
	return time.Since(start)
}
