package engine

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/balloons"
	"github.com/trimtab/trimtab/internal/placement/topologyaware"
)

// speedMachine has 256 CPUs.
const speedMachine = "2s x 4n x 2l x 8c x 2t"

// BenchmarkPolicies decides creations under the policies balloons and topology-aware, with 0, 100
// and 1,000 containers on 256 CPUs. The times are those of the thread, so that other programs on
// the machine do not count.
func BenchmarkPolicies(b *testing.B) {
	for _, n := range []int{0, 100, 1000} {
		b.Run(fmt.Sprintf("balloons/joins/%d", n), func(b *testing.B) { benchBalloons(b, n, "many", 100) })
		b.Run(fmt.Sprintf("balloons/new/%d", n), func(b *testing.B) { benchBalloons(b, n, "fixed", 1500) })
		b.Run(fmt.Sprintf("balloons/composite/%d", n), func(b *testing.B) { benchBalloons(b, n, "both", 3500) })
		b.Run(fmt.Sprintf("balloons/namespace/%d", n), func(b *testing.B) { benchBalloons(b, n, "apart-1", 1500) })
		b.Run(fmt.Sprintf("topologyaware/shares/%d", n), func(b *testing.B) { benchTree(b, n, 1500, 1700) })
		b.Run(fmt.Sprintf("topologyaware/owns/%d", n), func(b *testing.B) { benchTree(b, n, 2000, 2000) })
	}
}

func benchBalloons(b *testing.B, n int, namespace string, milli int64) {
	b.Helper()
	types := append(balloonTypes(), balloons.TypeOptions{Name: "many", Namespaces: []string{"many"}, MaxCPUs: 2, MinBalloons: 20})
	m, p := balloonsPolicy(b, speedMachine, balloons.PolicyOptions{BalloonTypes: types})
	s := NewState(m, p)
	for i := range n {
		pod, c := balloonPod(i, "many", "a", 150)
		s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: c}, Facts{}))
	}
	pod, c := balloonPod(5000, namespace, "a", milli)
	measureDecisions(b, s, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: c}, placement.Balloon)
}

func benchTree(b *testing.B, n int, milli, limit int64) {
	b.Helper()
	m, p := topologyAwarePolicy(b, speedMachine, topologyaware.Options{})
	s := NewState(m, p)
	for i := range n {
		pod, c := treePod(i, "many", 100, 200)
		s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: c}, Facts{}))
	}
	pod, c := treePod(5000, "a", milli, limit)
	want := placement.TreePool
	if milli == limit {
		want = placement.Exclusive
	}
	measureDecisions(b, s, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: c}, want)
}

// measureDecisions reports the median and the 99th percentile of a decision. Between the decisions it times two fixed
// works without allocations: arithmetic, and reads of 256 KiB in another order. What they take more than usual, the machine
// takes. Decisions during which the kernel ran another thread are in all-p99 and not in p99: afterwards the caches have
// the other's memory.
func measureDecisions(b *testing.B, s *State, ev *lifecycle.Event, want placement.PoolKind) {
	b.Helper()
	b.ReportAllocs()
	s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: ev.Pod}, Facts{})) // a runtime reports it before
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const most = 1 << 16
	all, alone, sums, reads := make(sample, 0, most), make(sample, 0, most), make(sample, 0, most), make(sample, 0, most)
	memory := newWalk()
	for b.Loop() && len(all) < most {
		start := threadTime(b)
		arithmetic()
		sums, start = append(sums, threadTime(b)-start), threadTime(b)
		memory.read()
		reads = append(reads, threadTime(b)-start)
		switches := threadSwitches(b)
		start = threadTime(b)
		plan := Decide(s, ev, Facts{})
		took := threadTime(b) - start
		if plan.Container.Assignment.Pool != want {
			b.Fatal(plan.Container.Assignment)
		}
		if all = append(all, took); threadSwitches(b) == switches {
			alone = append(alone, took)
		}
	}
	for _, m := range []struct {
		of   sample
		name string
	}{{all, "all-"}, {alone, ""}, {sums, "sum-"}, {reads, "read-"}} {
		slices.Sort(m.of)
		b.ReportMetric(float64(m.of[len(m.of)/2].Nanoseconds())/1000, m.name+"p50-us")
		b.ReportMetric(float64(m.of[len(m.of)*99/100].Nanoseconds())/1000, m.name+"p99-us")
	}
	b.ReportMetric(float64(len(all)-len(alone))*100/float64(len(all)), "%switched")
}

type sample []time.Duration

var sink uint64

// arithmetic takes about as long as a decision.
func arithmetic() {
	for i := range uint64(100000) {
		sink += i * i
	}
}

// walk is memory that is read in an order that a processor does not foresee.
type walk []uint32

func newWalk() walk {
	w := make(walk, 64<<10)
	for i := range w {
		w[i] = (uint32(i)*40503 + 12345) % uint32(len(w))
	}
	return w
}

func (w walk) read() {
	at := uint32(0)
	for range 4000 {
		at = w[at]
	}
	sink += uint64(at)
}

// threadSwitches is how often the kernel ran another thread in place of this one.
func threadSwitches(b *testing.B) int64 {
	b.Helper()
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &r); err != nil {
		b.Fatal(err)
	}
	return r.Nivcsw + r.Nvcsw
}

// threadTime is the processor time of this thread.
func threadTime(b *testing.B) time.Duration {
	b.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// BenchmarkPoliciesSynchronize decides a list of 1,000 containers without records.
func BenchmarkPoliciesSynchronize(b *testing.B) {
	ev := &lifecycle.Event{Kind: lifecycle.Synchronize}
	for i := range 1000 {
		pod, c := balloonPod(i, fmt.Sprintf("apart-%d", i%50), "a", 100)
		ev.Pods, ev.Containers = append(ev.Pods, pod), append(ev.Containers, c)
	}
	b.Run("balloons", func(b *testing.B) {
		m, p := balloonsPolicy(b, speedMachine, balloons.PolicyOptions{BalloonTypes: balloonTypes()})
		for b.Loop() {
			s := NewState(m, p)
			s.Commit(Decide(s, ev, Facts{}))
		}
	})
	b.Run("topologyaware", func(b *testing.B) {
		m, p := topologyAwarePolicy(b, speedMachine, topologyaware.Options{})
		for b.Loop() {
			s := NewState(m, p)
			s.Commit(Decide(s, ev, Facts{}))
		}
	})
}
