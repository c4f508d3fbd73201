package conductor_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// hung runs a test with a hook server that does not answer about the pod named hang until
// release is called.
func hung(t *testing.T, play func(t *testing.T, mo *model, o *fakeHookServers, hang func(*modelPod), release func())) {
	t.Helper()
	for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		t.Run(fmt.Sprint("v", v), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				name, open := "", make(chan struct{})
				mo := newModel(t, v, faults{})
				o := &fakeHookServers{answer: func(ev *lifecycle.Event) (lifecycle.HookServerAnswer, error) {
					if ev.Pod.Name == name {
						<-open
					}
					return lifecycle.HookServerAnswer{}, nil
				}}
				mo.liar = o
				mo.boot()
				start := time.Now()
				play(t, mo, o, func(p *modelPod) { name = p.Name }, func() { close(open) })
				if took := time.Since(start); took > 10*time.Millisecond { // answers are confirmed a moment later
					t.Errorf("it took %v", took)
				}
				if len(mo.broken) > 0 {
					t.Error(mo.broken)
				}
			})
		})
	}
}

// inBackground runs a function until it waits for something; wait returns when it has ended.
func inBackground(f func()) (wait func()) {
	var all sync.WaitGroup
	all.Go(f)
	synctest.Wait()
	return all.Wait
}

// owner runs a pod that gets CPUs of its own.
func (mo *model) owner(t *testing.T, cpus string) {
	t.Helper()
	c := mo.create(mo.runPod("LSR", cpus, ""), "db")
	mo.start(c)
	if got := mo.effective(c); got != cpus {
		t.Errorf("the owner of %s has %s", cpus, got)
	}
}

// TestHungAtCreation: while the hook server of a pod hangs, other pods are created, started,
// updated and removed without delay. The hung pod is decided afterwards, on the state of that
// time.
func TestHungAtCreation(t *testing.T) {
	t.Parallel()
	hung(t, func(t *testing.T, mo *model, _ *fakeHookServers, hang func(*modelPod), release func()) {
		t.Helper()
		running := mo.create(mo.runPod("", "", ""), "a")
		mo.start(running)
		shares, owns := mo.runPod("", "", ""), mo.runPod("LSR", "2-4", "")
		var sharer, late *modelCtr
		hang(shares)
		wait := inBackground(func() { sharer = mo.create(shares, "a") })
		before := time.Now()
		mo.owner(t, "4-5")
		mo.update(running, lifecycle.Resources{CPU: lifecycle.CPU{Shares: lifecycle.Some[uint64](512)}})
		mo.remove(running)
		mo.removePod(running.pod)
		if took := time.Since(before); took > 0 {
			t.Errorf("others waited %v", took)
		}
		if sharer != nil {
			t.Fatal("it did not hang")
		}
		release()
		wait()
		mo.start(sharer)
		if got := mo.effective(sharer); got != "0-3,6-7" {
			t.Errorf("it has %s", got)
		}
		// CPU 4 was free when this pod was created.
		late = mo.create(owns, "db")
		mo.start(late)
		if got := mo.effective(late); got == "2-4" {
			t.Errorf("a second owner has %s", got)
		}
	})
}

// TestHungOwner: a pod that should own CPUs and hangs does not get those that another pod got
// first. It gets those that are free.
func TestHungOwner(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"2-3", "5-6"} {
		hung(t, func(t *testing.T, mo *model, _ *fakeHookServers, hang func(*modelPod), release func()) {
			t.Helper()
			running := mo.create(mo.runPod("", "", ""), "a")
			mo.start(running)
			p := mo.runPod("LSR", "2-3", "")
			var c *modelCtr
			hang(p)
			wait := inBackground(func() { c = mo.create(p, "db") })
			mo.owner(t, first)
			release()
			wait()
			mo.start(c)
			if got := mo.effective(c); (got == "2-3") != (first != "2-3") {
				t.Errorf("with %s owned it has %s", first, got)
			}
		})
	}
}

// TestHungAtUpdate is the same for an update of CPUs that another pod gets meanwhile.
func TestHungAtUpdate(t *testing.T) {
	t.Parallel()
	hung(t, func(t *testing.T, mo *model, _ *fakeHookServers, hang func(*modelPod), release func()) {
		t.Helper()
		c := mo.create(mo.runPod("", "", ""), "a")
		mo.start(c)
		hang(c.pod)
		wait := inBackground(func() { mo.update(c, lifecycle.Resources{CPU: lifecycle.CPU{CPUs: "1-4"}}) })
		before := time.Now()
		mo.owner(t, "4-5")
		if took := time.Since(before); took > 0 {
			t.Errorf("others waited %v", took)
		}
		if got := mo.effective(c); got != "0-3,6-7" {
			t.Errorf("before its update it has %s", got)
		}
		release()
		wait()
		if got := mo.effective(c); got != "1-3" {
			t.Errorf("after its update it has %s", got)
		}
	})
}

// TestHungKeepsOrder: of two updates of one container the later one counts, although the hook
// server hangs at the first.
func TestHungKeepsOrder(t *testing.T) {
	t.Parallel()
	hung(t, func(t *testing.T, mo *model, o *fakeHookServers, hang func(*modelPod), release func()) {
		t.Helper()
		c := mo.create(mo.runPod("", "", ""), "a")
		mo.start(c)
		asked := len(o.asked)
		update := func(cpu lifecycle.CPU) (wait func()) {
			return inBackground(func() {
				_, err := mo.con.Handle(t.Context(), mo.from, lifecycle.Event{
					Kind: lifecycle.UpdateContainer, Pod: clone(&c.pod.Pod), Container: clone(&c.Container), Requested: &lifecycle.Resources{CPU: cpu},
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		hang(c.pod)
		first := update(lifecycle.CPU{Shares: lifecycle.Some[uint64](512)})
		second := update(lifecycle.CPU{Shares: lifecycle.Some[uint64](600)})
		if n := len(o.asked) - asked; n != 1 {
			t.Errorf("%d questions while the first hangs", n)
		}
		mo.owner(t, "4-5")
		release()
		first()
		second()
		update(lifecycle.CPU{Quota: lifecycle.Some[int64](50000)})()
		var shares []uint64 // the last of them is in force
		for _, ev := range o.asked[asked:] {
			if ev.Kind == lifecycle.UpdateContainer {
				shares = append(shares, ev.Container.Resources.CPU.Shares.V)
			}
		}
		if !slices.Equal(shares, []uint64{512, 600, 600}) {
			t.Errorf("asked with shares %v", shares)
		}
	})
}
