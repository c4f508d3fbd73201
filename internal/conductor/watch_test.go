package conductor_test

import (
	"bytes"
	"context"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/api"
)

// fakeWatcher reports writes to the simulated kernel's files, as inotify does for real ones.
type fakeWatcher struct {
	mu   sync.Mutex
	dirs map[string]bool
	out  chan cgroup.Notice
}

func listen(mo *model) *fakeWatcher {
	e := &fakeWatcher{dirs: map[string]bool{}, out: make(chan cgroup.Notice, 10000)}
	mo.kernel.OnWrite(func(file, _ string) { e.hear(file) })
	return e
}

func (e *fakeWatcher) hear(file string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dirs[path.Dir(file)] {
		e.out <- cgroup.Notice{Change: cgroup.Written, Path: file}
	}
}

func (e *fakeWatcher) Add(dir string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dirs[dir] = true
	return nil
}

func (e *fakeWatcher) Remove(dir string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.dirs, dir)
}

func (e *fakeWatcher) Notices() <-chan cgroup.Notice { return e.out }

func (e *fakeWatcher) Close() error { return nil }

// bubble is a test in a synctest bubble.
type bubble struct {
	*testing.T
	// watch runs a model's Watch until the test ends.
	watch func(*model, cgroup.Watcher)
	// watchBy is watch with the model's own clock.
	watchBy func(*model, cgroup.Watcher)
}

// watched runs f in a bubble.
func watched(t *testing.T, f func(b bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		by := func(mo *model, w cgroup.Watcher) {
			all.Go(func() {
				if err := mo.con.Watch(ctx, w); err != nil {
					t.Error(err)
				}
			})
		}
		f(bubble{T: t, watchBy: by, watch: func(mo *model, w cgroup.Watcher) {
			mo.now = time.Now
			by(mo, w)
		}})
		stop()
		all.Wait()
	})
}

// podDir is the cgroup of a container's pod.
func podDir(c *modelCtr) string { return path.Dir(c.dir()) }

// TestWatchRepairs widens the cpusets of a container and its pod. Both are repaired within a
// second, after an inotify event or a poll.
func TestWatchRepairs(t *testing.T) {
	t.Parallel()
	for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		for _, blind := range []bool{false, true} {
			t.Run(v.String()+map[bool]string{true: "/blind"}[blind], func(t *testing.T) {
				t.Parallel()
				watched(t, func(b bubble) { b.repairs(v, blind) })
			})
		}
	}
}

func (b bubble) repairs(v cgroup.Version, blind bool) {
	b.Helper()
	mo := newModel(b, v, faults{})
	var w cgroup.Watcher
	if mo.kernel.OnWrite(nil); !blind {
		w = listen(mo)
	}
	owner := mo.create(mo.runPod("LSR", "2-3", ""), "db")
	mo.start(owner)
	b.watch(mo, w)
	tree := &cgroup.Tree{FS: mo.kernel, Version: v}
	for range 3 {
		time.Sleep(10 * time.Second)
		must(tree.Write(owner.dir(), lifecycle.Value{Field: lifecycle.CPUSetCPUs, Text: "0-3"}))
		must(tree.Write(podDir(owner), lifecycle.Value{Field: lifecycle.CPUQuota, Int: 50000}))
		time.Sleep(time.Second)
		quota, _, err := tree.ReadBandwidth(podDir(owner))
		if got := mo.effective(owner); got != "2-3" || err != nil || quota != "-1" && quota != "max" {
			b.Errorf("a second later it has CPUs %s and its pod a quota of %s, %v", got, quota, err)
		}
	}
	if n := nodeview.Summary(mo.con); n.Drift["cpuset.cpus"] != 3 || n.Drift["cpu.quota"] != 3 {
		b.Errorf("counted: %v", n.Drift)
	}
}

// TestWatchWaits: a repair waits while a program writes several files of a cgroup, but not
// without limit.
func TestWatchWaits(t *testing.T) {
	t.Parallel()
	watched(t, func(b bubble) {
		mo := newModel(b, cgroup.V1, faults{})
		owner := mo.create(mo.runPod("LSR", "2-3", ""), "db")
		mo.start(owner)
		b.watch(mo, listen(mo))
		time.Sleep(time.Second)
		tree := &cgroup.Tree{FS: mo.kernel, Version: cgroup.V1}
		var repaired []time.Duration
		for start := time.Now(); time.Since(start) < 2*time.Second; time.Sleep(20 * time.Millisecond) {
			if mo.effective(owner) == "2-3" {
				repaired = append(repaired, time.Since(start))
			}
			must(tree.Write(owner.dir(), lifecycle.Value{Field: lifecycle.CPUSetCPUs, Text: "0-3"}))
		}
		// The first is how it was.
		if len(repaired) < 2 || repaired[1] < 400*time.Millisecond || repaired[1] > time.Second || len(repaired) > 4 {
			b.Errorf("put right at %v, while another wrote every 20 ms", repaired)
		}
	})
}

// TestWatchGivesUp: a file that another program keeps changing is left to it, which is
// reported, and a release leaves its value.
func TestWatchGivesUp(t *testing.T) {
	t.Parallel()
	watched(t, func(b bubble) {
		mo := newModel(b, cgroup.V1, faults{})
		mo.con.Configure(mo.policy, conductor.Tuning{ConflictLimit: keeper.ConflictLimit{MaxRepairs: 2, Window: time.Hour}})
		c := mo.create(mo.runPod("LSR", "2-3", ""), "db")
		mo.start(c)
		b.watch(mo, listen(mo))
		tree := &cgroup.Tree{FS: mo.kernel, Version: cgroup.V1}
		quota := func() string {
			text, _, err := tree.ReadBandwidth(podDir(c))
			must(err)
			return text
		}
		for range 3 {
			time.Sleep(2 * time.Second)
			must(tree.Write(podDir(c), lifecycle.Value{Field: lifecycle.CPUQuota, Int: 50000}))
		}
		time.Sleep(2 * time.Minute)
		n := nodeview.Status(mo.con)
		if quota() != "50000" || len(n.Contested) != 1 || n.Contested[0].GaveUpReason == "" || n.Unapplied != 1 {
			b.Errorf("quota %s, contested %+v, not in force %d", quota(), n.Contested, n.Unapplied)
		}
		if n := nodeview.Summary(mo.con); n.Ceded["cpu.quota"] != 1 || n.Unapplied[api.LeftAlone] != 1 {
			b.Errorf("summary: %v, %v", n.Ceded, n.Unapplied)
		}
		policy := mo.policy
		policy.Hooks, policy.PlacementOn = nil, false
		ctx, cancel := context.WithCancel(b.Context())
		cancel() // there is no runtime whose copies a release would wait for
		if r := mo.con.Release(ctx, policy); len(r.LeftToOthers) != 1 || quota() != "50000" {
			b.Errorf("released as theirs: %+v, quota %s", r, quota())
		}
	})
}

// TestWatchKeepsApart: another program widens the CPUs of an owner, and of a container that
// must not use them, ten times a second for ten minutes. These lists are never left to it: they
// are repaired at least every ten seconds, and that is logged as an error while it lasts.
func TestWatchKeepsApart(t *testing.T) {
	t.Parallel()
	for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		watched(t, func(b bubble) { b.keepsApart(v) })
	}
}

// errorLines counts the lines of a log at level error.
type errorLines struct{ n atomic.Int64 }

func (l *errorLines) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("level=ERROR")) {
		l.n.Add(1)
	}
	return len(line), nil
}

func (b bubble) keepsApart(v cgroup.Version) {
	b.Helper()
	mo := newModel(b, v, faults{})
	said := &errorLines{}
	mo.log = said
	mo.boot()
	mo.con.Configure(mo.policy, conductor.Tuning{ConflictLimit: keeper.ConflictLimit{MaxRepairs: 30, Window: time.Minute}})
	both := map[*modelCtr]string{mo.create(mo.runPod("LSR", "2-3", ""), "db"): "2-3", mo.create(mo.runPod("BE", "", ""), "web"): "0-1,4-7"}
	for c := range both {
		mo.start(c)
	}
	var mu sync.Mutex
	right := map[string]time.Time{} // when each list was last repaired
	heard := listen(mo)
	mo.kernel.OnWrite(func(file, value string) { // the other program breaks I1
		heard.hear(file)
		mu.Lock()
		defer mu.Unlock()
		if value != "0-7" {
			right[path.Base(path.Dir(file))] = time.Now()
		}
	})
	b.watch(mo, heard)
	tree := &cgroup.Tree{FS: mo.kernel, Version: v}
	for begin := time.Now(); time.Since(begin) < 10*time.Minute; time.Sleep(100 * time.Millisecond) {
		for c := range both {
			mu.Lock()
			last := right[c.ID]
			mu.Unlock()
			if bad := time.Since(last); time.Since(begin) > time.Minute && bad > 11*time.Second {
				b.Fatalf("%s: for %v %s has CPUs %s", v, bad, c.Name, mo.effective(c))
			}
			must(tree.Write(c.dir(), lifecycle.Value{Field: lifecycle.CPUSetCPUs, Text: "0-7"}))
		}
	}
	if n := nodeview.Summary(mo.con); n.Contested["cpuset.cpus"] != 2 || len(n.Ceded) != 0 {
		b.Errorf("%s: contested %v, left alone %v", v, n.Contested, n.Ceded)
	}
	if n := nodeview.Status(mo.con); len(n.Contested) != 2 || n.Contested[0].RepairReason == "" || n.Contested[1].RepairReason == "" {
		b.Errorf("%s: status has %+v", v, n.Contested)
	}
	if writes := nodeview.Summary(mo.con).Drift["cpuset.cpus"]; writes < 120 || writes > 300 {
		b.Errorf("%s: put right %d times in ten minutes", v, writes)
	}
	if loud := said.n.Load(); loud < 60 {
		b.Errorf("%s: said %d times in ten minutes", v, loud)
	}
	time.Sleep(12 * time.Second)
	for c, want := range both {
		if got := mo.effective(c); got != want {
			b.Errorf("%s: in peace %s has CPUs %s, want %s", v, c.Name, got, want)
		}
	}
	time.Sleep(time.Minute)
	if n := nodeview.Status(mo.con); n.Contested[0].RepairReason != "" || len(nodeview.Summary(mo.con).Contested) != 0 {
		b.Errorf("%s: in peace, and status says %+v", v, n.Contested)
	}
}

// TestWatchTriesAgain: a list that the kernel refuses is tried again at growing intervals,
// without limit, because it keeps containers apart. When the cause is gone, it is in force.
func TestWatchTriesAgain(t *testing.T) {
	t.Parallel()
	watched(t, func(b bubble) {
		mo := newModel(b, cgroup.V1, faults{})
		c := mo.create(mo.runPod("LSR", "2-3", ""), "db")
		mo.start(c)
		b.watch(mo, listen(mo))
		time.Sleep(time.Second)
		tree := &cgroup.Tree{FS: mo.kernel, Version: cgroup.V1}
		must(tree.Write(c.dir(), lifecycle.Value{Field: lifecycle.CPUSetCPUs, Text: "0-3"}))
		must(mo.kernel.MkdirRunc(c.dir() + "/nested")) // keeps them busy
		time.Sleep(20 * time.Minute)
		if n := nodeview.Summary(mo.con).Kernel["refused"]; n < 10 || n > 40 {
			b.Errorf("refused %d times in twenty minutes", n)
		}
		if n := nodeview.Summary(mo.con).Unapplied[api.KernelRefused]; n != 1 {
			b.Errorf("%d values are reported as refused", n)
		}
		must(mo.kernel.Rmdir(c.dir() + "/nested"))
		time.Sleep(130 * time.Second)
		if got := mo.effective(c); got != "2-3" {
			b.Errorf("nothing is in the way, and it has %s", got)
		}
	})
}

// pollableRuntime is a runtime that does not report new resources.
type pollableRuntime struct{ asked chan string }

var _ conductor.ResourcePoller = pollableRuntime{}

func (r pollableRuntime) Poll(id string) { r.asked <- id }

func (pollableRuntime) Update(context.Context, []conductor.Settings) ([]string, error) {
	return nil, nil
}

func (pollableRuntime) About() string { return "a runtime" }

// TestWatchAsks: a runtime is asked once about a container whose files were written, before its
// values are repaired, because the writer may be the runtime.
func TestWatchAsks(t *testing.T) {
	t.Parallel()
	watched(t, func(b bubble) {
		mo := newModel(b, cgroup.V2, faults{})
		owner := mo.create(mo.runPod("LSR", "2-3", ""), "db")
		mo.start(owner)
		r := pollableRuntime{make(chan string, 10)}
		mo.con.Attached(observing{}, r)
		b.watch(mo, listen(mo))
		time.Sleep(10 * time.Second)
		tree := &cgroup.Tree{FS: mo.kernel, Version: cgroup.V2}
		for range 2 {
			must(tree.Write(owner.dir(), lifecycle.Value{Field: lifecycle.CPUSetCPUs, Text: "0-3"}))
		}
		if id := <-r.asked; id != owner.ID || mo.effective(owner) != "0-3" {
			b.Errorf("asked about %s, want %s, while it has CPUs %s", id, owner.ID, mo.effective(owner))
		}
		time.Sleep(time.Second)
		if n := len(r.asked); n > 0 || mo.effective(owner) != "2-3" {
			b.Errorf("asked %d more times, and it has CPUs %s", n, mo.effective(owner))
		}
	})
}

// TestWatchWritesRefused: a value that the kernel refused for a temporary reason, such as too
// few descriptors, is written when that is over, and reported as in force, even if nothing else
// happens on the node.
func TestWatchWritesRefused(t *testing.T) {
	t.Parallel()
	for _, blind := range []bool{false, true} {
		watched(t, func(b bubble) {
			mo := newModel(b, cgroup.V2, faults{})
			var w cgroup.Watcher
			if mo.kernel.OnWrite(nil); !blind {
				w = listen(mo)
			}
			other := mo.create(mo.runPod("LS", "", ""), "web")
			mo.start(other)
			b.watch(mo, w)
			time.Sleep(time.Minute)
			mo.kernel.FailWrites(func(string, string) error { return syscall.EMFILE })
			mo.create(mo.runPod("LSR", "2-3", ""), "db")
			time.Sleep(time.Second)
			if nodeview.Status(mo.con).Unapplied == 0 {
				b.Error("the kernel refuses all, and nothing is said to be not in force")
			}
			mo.kernel.FailWrites(nil)
			time.Sleep(10 * time.Second)
			if got := mo.effective(other); strings.Contains(got, "2") || strings.Contains(got, "0-3") {
				b.Errorf("the other has CPUs %s", got)
			}
			if n := nodeview.Status(mo.con).Unapplied; n != 0 {
				b.Errorf("%d values are said to be not in force", n)
			}
		})
	}
}
