package conductor_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/sim/clock"
)

// recordingRuntime is a runtime that records when each container's update was sent. It answers none while
// hangs is set.
type recordingRuntime struct {
	hangs   bool
	refuses func() bool // nil for never
	refused int

	mu   sync.Mutex
	sent map[string]time.Time
}

func (r *recordingRuntime) Update(ctx context.Context, what []conductor.Settings) ([]string, error) {
	if r.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuses != nil && r.refuses() {
		r.refused++
		return []string{what[0].Container}, nil
	}
	for _, s := range what {
		r.sent[s.Container] = time.Now()
	}
	return nil, nil
}

func (*recordingRuntime) About() string { return "a runtime" }

// at returns when a container's update was sent.
func (r *recordingRuntime) at(id string) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sent[id]
}

// times returns how many updates were refused.
func (r *recordingRuntime) times() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refused
}

// updatesOthers is a carrier whose answers can change other containers.
type updatesOthers struct{ carrier }

func (updatesOthers) Capabilities() conductor.Capabilities {
	can := carrier{}.Capabilities()
	can.Piggybacks = true
	return can
}

// clocked runs f on a model with a runtime and with Run running, in a synctest bubble. Its wall
// clock can be stepped.
func clocked(t *testing.T, r *recordingRuntime, f func(t *testing.T, mo *model, clk *clock.Clock)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		clk := clock.New(time.Now)
		mo := newModel(t, cgroup.V2, faults{})
		mo.now, mo.from = clk.Now, updatesOthers{}
		mo.boot()
		r.sent = map[string]time.Time{}
		mo.con.Attached(mo.from, r)
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { _ = mo.con.Run(ctx) })
		f(t, mo, clk)
		stop()
		all.Wait()
		if len(mo.broken) > 0 {
			t.Error(mo.broken)
		}
	})
}

// wallSteps are steps of a wall clock, as an administrator or NTP makes them.
var wallSteps = []time.Duration{-time.Hour, -400 * 24 * time.Hour, time.Hour, 400 * 24 * time.Hour}

// TestQueueThroughSteps steps the wall clock while an update of the runtime's copy waits until
// the node is idle. The update is sent at that time, and not before.
func TestQueueThroughSteps(t *testing.T) {
	t.Parallel()
	for _, step := range wallSteps {
		r := &recordingRuntime{}
		clocked(t, r, func(t *testing.T, mo *model, clk *clock.Clock) {
			t.Helper()
			web := mo.create(mo.runPod("LS", "", ""), "web")
			mo.start(web)
			time.Sleep(5 * time.Second) // all copies are sent
			mo.create(mo.runPod("LSR", "2-3", ""), "db")
			begin := time.Now()
			clk.Step(step)
			time.Sleep(10 * time.Second)
			if took := r.at(web.ID).Sub(begin); took < time.Second || took > 3*time.Second {
				t.Errorf("a step by %v: the copy is brought in line after %v, want after a second of quiet", step, took)
			}
		})
	}
}

// TestPiggybackThroughSteps steps the wall clock on a node that is never idle: copies go with
// answers after the same wait.
func TestPiggybackThroughSteps(t *testing.T) {
	t.Parallel()
	for _, step := range wallSteps {
		clocked(t, &recordingRuntime{}, func(t *testing.T, mo *model, clk *clock.Clock) {
			t.Helper()
			web := mo.create(mo.runPod("LS", "", ""), "web")
			mo.start(web)
			mo.handle(lifecycle.Event{Kind: lifecycle.PostCreateContainer, Pod: clone(&web.pod.Pod), Container: clone(&web.Container)})
			time.Sleep(5 * time.Second)
			mo.create(mo.runPod("LSR", "2-3", ""), "db")
			begin := time.Now()
			clk.Step(step)
			passing := &lifecycle.Pod{ID: "x", Name: "x", UID: "ux", Namespace: "default", CgroupParent: "/kubepods/podux"}
			for after := time.Duration(0); after < 40*time.Second; after = time.Since(begin) {
				time.Sleep(250 * time.Millisecond)
				ans, _ := mo.handle(lifecycle.Event{Kind: lifecycle.StopContainer, Pod: clone(passing), Container: &lifecycle.Container{ID: "y", PodID: "x", Name: "y"}})
				if slices.ContainsFunc(ans.Others, func(s conductor.Settings) bool { return s.Container == web.ID }) {
					if took := time.Since(begin); took < 29*time.Second || took > 32*time.Second {
						t.Errorf("a step by %v: the copy goes with an answer after %v", step, took)
					}
					return
				}
			}
			t.Errorf("a step by %v: the copy went with no answer in 40 s", step)
		})
	}
}

// TestSweepThroughSteps steps the wall clock after an owner ended without an event, while an
// update waits. Its CPUs are free soon all the same.
func TestSweepThroughSteps(t *testing.T) {
	t.Parallel()
	for _, step := range wallSteps {
		clocked(t, &recordingRuntime{}, func(t *testing.T, mo *model, clk *clock.Clock) {
			t.Helper()
			web := mo.create(mo.runPod("LS", "", ""), "web")
			mo.start(web)
			db := mo.create(mo.runPod("LSR", "2-3", ""), "db")
			mo.start(db)
			time.Sleep(11 * time.Second)                  // the agent has seen the cgroup
			mo.create(mo.runPod("LSR", "4", ""), "other") // an update waits until the node is idle
			mo.vanish(db)
			clk.Step(step)
			time.Sleep(11 * time.Second)
			if n := nodeview.Summary(mo.con).Exclusive; n != 1 {
				t.Errorf("a step by %v: %d CPUs are owned, want those of the owner that is left", step, n)
			}
		})
	}
}

// TestSweepIsNotStarved: an owner ends without an event on a node that is never idle, and on
// one whose runtime does not answer updates. The sweep ends it in both cases.
func TestSweepIsNotStarved(t *testing.T) {
	t.Parallel()
	for _, hangs := range []bool{false, true} {
		clocked(t, &recordingRuntime{hangs: hangs}, func(t *testing.T, mo *model, _ *clock.Clock) {
			t.Helper()
			web := mo.create(mo.runPod("LS", "", ""), "web")
			mo.start(web)
			db := mo.create(mo.runPod("LSR", "2-3", ""), "db")
			mo.start(db)
			passing := &lifecycle.Pod{ID: "x", Name: "x", UID: "ux", Namespace: "default", CgroupParent: "/kubepods/podux"}
			busy := func(d time.Duration) {
				for begin := time.Now(); time.Since(begin) < d; time.Sleep(200 * time.Millisecond) {
					if !hangs {
						mo.handle(lifecycle.Event{Kind: lifecycle.StopPodSandbox, Pod: clone(passing)})
					}
				}
			}
			busy(11 * time.Second) // the agent sees the cgroup
			mo.vanish(db)
			busy(11 * time.Second)
			if n := nodeview.Summary(mo.con).Exclusive; n != 0 {
				t.Errorf("a runtime that hangs: %v; %d CPUs are still owned by nobody", hangs, n)
			}
		})
	}
}

// TestListsAreSentAgain: a runtime refuses every update for an hour. The copy of a list of CPUs
// is tried again, at growing intervals, until the runtime accepts it. Until then the
// container's values report the refusal.
func TestListsAreSentAgain(t *testing.T) {
	t.Parallel()
	r := &recordingRuntime{}
	clocked(t, r, func(t *testing.T, mo *model, _ *clock.Clock) {
		t.Helper()
		begin := time.Now()
		r.mu.Lock()
		r.refuses = func() bool { return time.Since(begin) < time.Hour }
		r.mu.Unlock()
		web := mo.create(mo.runPod("LS", "", ""), "web")
		mo.start(web)
		mo.create(mo.runPod("LSR", "2-3", ""), "db")
		time.Sleep(59 * time.Minute)
		if n := r.times(); n < maxTriesOf+4 || n > maxTriesOf+8 {
			t.Errorf("asked %d times within an hour", n)
		}
		if v := explained(t, mo, web, "cpuset.cpus"); !v.Applied || !strings.Contains(v.Note, "the runtime refused to store the value") {
			t.Errorf("explain: %+v", v)
		}
		time.Sleep(18 * time.Minute)
		if v := explained(t, mo, web, "cpuset.cpus"); r.at(web.ID).IsZero() || v.Note != "the runtime's copy agrees" {
			t.Errorf("the runtime takes updates again, and explain says: %+v", v)
		}
	})
}

// maxTriesOf is how often an update is sent before it is given up or postponed.
const maxTriesOf = 5

// TestWatchThroughSteps steps the wall clock between a write of another program and its repair.
func TestWatchThroughSteps(t *testing.T) {
	t.Parallel()
	for _, step := range wallSteps {
		watched(t, func(b bubble) {
			clk := clock.New(time.Now)
			mo := newModel(b, cgroup.V2, faults{})
			mo.now = clk.Now
			mo.boot()
			owner := mo.create(mo.runPod("LSR", "2-3", ""), "db")
			mo.start(owner)
			b.watchBy(mo, listen(mo))
			time.Sleep(10 * time.Second)
			tree := &cgroup.Tree{FS: mo.kernel, Version: cgroup.V2}
			must(tree.Write(owner.dir(), lifecycle.Value{Field: lifecycle.CPUSetCPUs, Text: "0-3"}))
			time.Sleep(100 * time.Millisecond)
			if got := mo.effective(owner); got != "0-3" {
				b.Errorf("a step by %v: the writer is met half-way", step)
			}
			clk.Step(step)
			time.Sleep(900 * time.Millisecond)
			if got := mo.effective(owner); got != "2-3" {
				b.Errorf("a step by %v: a second later it has CPUs %s", step, got)
			}
		})
	}
}

// vanish ends a container's pod without an event.
func (mo *model) vanish(c *modelCtr) {
	c.ended, c.pod.stopped = true, true
	must(mo.kernel.SetTasks(c.dir(), 0))
	must(mo.kernel.Rmdir(c.dir()))
	must(mo.kernel.Rmdir(podDir(c)))
}
