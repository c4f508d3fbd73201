package conductor_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/facts"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// keepingPlugins is a plugin that has something for each pod until it is released. Pods are decided
// ahead at the same time.
type keepingPlugins struct {
	mu    sync.Mutex
	has   map[string]bool // by pod UID: whether a container was created
	asked int
}

func (k *keepingPlugins) Question(pod *lifecycle.Pod, _ *lifecycle.Container, _ *lifecycle.PodSpec, ahead bool) facts.Question {
	return keepingQuestion{k, pod.UID, ahead}
}

func (*keepingPlugins) PreStart(context.Context, *lifecycle.Pod, *lifecycle.Container) []lifecycle.Problem {
	return nil
}
func (k *keepingPlugins) Remove(uid string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.has, uid)
}

func (k *keepingPlugins) ReleaseIfNotCreated(uid string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.has[uid] {
		delete(k.has, uid)
	}
}
func (*keepingPlugins) Values(string) map[string][]lifecycle.Value { return nil }

func (k *keepingPlugins) ReleaseEnded(live map[string]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.has, func(uid string, _ bool) bool { return !live[uid] })
}

type keepingQuestion struct {
	k     *keepingPlugins
	uid   string
	ahead bool
}

func (keepingQuestion) Hints(context.Context) ([]lifecycle.ResourceHints, []lifecycle.Problem) {
	return nil, nil
}

func (q keepingQuestion) Allocate(context.Context, *lifecycle.Affinity) (lifecycle.HookServerAnswer, error) {
	q.k.mu.Lock()
	defer q.k.mu.Unlock()
	if _, has := q.k.has[q.uid]; !has {
		q.k.asked++
	}
	q.k.has[q.uid] = q.k.has[q.uid] || !q.ahead
	return lifecycle.HookServerAnswer{}, nil
}

// foreseen is a kubelet whose pods are known before the runtime has them.
type foreseen struct {
	mo      *model
	ahead   *conductor.Ahead
	of      *conductor.Conductor // whose ahead is
	now     time.Time
	pending map[string]engine.PlannedPod
	counts  map[string]int
}

const aheadTimeout = time.Minute

// round has the present agent decide ahead.
func (f *foreseen) round(t testing.TB) {
	t.Helper()
	if f.of != f.mo.con {
		f.of = f.mo.con
		f.ahead = conductor.NewAhead(f.mo.con, conductor.AheadOptions{Timeout: aheadTimeout, Log: slog.New(slog.DiscardHandler), Pending: func() []engine.PlannedPod {
			return slices.Collect(maps.Values(f.pending))
		}})
	}
	f.ahead.Round(t.Context())
}

// plan is a pod as the kubelet would send it.
func plan(p *modelPod) engine.PlannedPod {
	w := engine.PlannedPod{Pod: p.Pod, Spec: &lifecycle.PodSpec{UID: p.UID, Name: p.Name, Namespace: p.Namespace, Containers: []lifecycle.ContainerSpec{{Name: "a"}}}}
	w.Pod.ID = p.UID
	w.Containers = []lifecycle.Container{{ID: p.UID + "-a", PodID: p.UID, Name: "a", Resources: p.wants}}
	return w
}

// never makes a pod that the kubelet knows and never starts.
func (f *foreseen) never() {
	f.mo.n++
	p := &modelPod{Pod: lifecycle.Pod{Name: fmt.Sprintf("never%d", f.mo.n), UID: fmt.Sprintf("never-%d", f.mo.n), Namespace: "default"}}
	f.mo.dress(p)
	f.pending[p.UID] = plan(p)
}

// change gives a pod another spec.
func (f *foreseen) change(uid string) {
	was := f.pending[uid]
	spec := *was.Spec
	was.Spec = &spec
	was.Containers = slices.Clone(was.Containers)
	was.Containers[0].Resources.CPU = lifecycle.CPU{Shares: lifecycle.Some[uint64](1024), Quota: lifecycle.Some[int64](100000)}
	f.pending[uid] = was
}

// TestAheadLeavesNothing plays random histories, in which some pods are decided before the runtime
// reports them: some of these never come, change, or are deleted, and the agent restarts. The
// invariants hold, and in the end nothing is kept.
func TestAheadLeavesNothing(t *testing.T) {
	t.Parallel()
	counts := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		mo := newPooledOn(t, anyMachine(rt), cgroup.V2, faults{}, rapid.IntRange(0, 199).Draw(rt, "seed"))
		k := &keepingPlugins{has: map[string]bool{}}
		f := &foreseen{mo: mo, now: time.Unix(0, 0), pending: map[string]engine.PlannedPod{}, counts: counts}
		mo.plugins, mo.now = k, func() time.Time { return f.now }
		mo.boot()
		mo.handle(mo.everything())
		guesses := rapid.SliceOfN(rapid.IntRange(0, 9), 61, 61).Draw(rt, "guesses")
		mo.arrives = func(p *modelPod) {
			guess := guesses[len(mo.pods)%len(guesses)]
			if guess < 6 {
				f.pending[p.UID] = plan(p)
			}
			switch {
			case guess == 7:
				f.never()
			case guess == 8:
				f.now = f.now.Add(aheadTimeout)
			case guess == 9 && len(f.pending) > 0:
				uid := slices.Sorted(maps.Keys(f.pending))[0]
				if f.change(uid); len(mo.pods)%2 == 0 {
					delete(f.pending, uid)
				}
			}
			f.round(t)
			if guess%2 == 0 {
				delete(f.pending, p.UID) // the kubelet reports the pod as running before the runtime reports it
			}
		}
		play(mo, steps().Draw(rt, "history"))
		for _, p := range slices.Clone(mo.pods) {
			counts["pods"]++
			mo.removePod(p)
		}
		f.round(t)
		for uid := range f.pending {
			if strings.HasPrefix(uid, "never-") {
				counts["never started"]++
			}
		}
		counts["kept at the end of the history"] += len(conductor.Expects(mo.con))
		switch rapid.IntRange(0, 2).Draw(rt, "end") {
		case 0: // the pods are deleted
			f.pending = nil
		case 1: // nobody hears of them
			f.now = f.now.Add(aheadTimeout)
		case 2:
			f.pending = nil
			mo.restart()
			f.round(t)
			f.now = f.now.Add(aheadTimeout)
		}
		f.round(t)
		if left := conductor.Expects(mo.con); len(left) > 0 {
			mo.wrong("these are kept for nobody: %v", left)
		}
		if left := mo.grants(); len(left) > 0 {
			mo.wrong("these are owned by nobody: %v", left)
		}
		if len(k.has) > 0 {
			mo.wrong("a plugin has something for %v", k.has)
		}
		if len(mo.broken) > 0 {
			rt.Fatalf("%v", mo.broken)
		}
	})
	t.Log(counts)
	for _, what := range []string{"pods", "never started", "kept at the end of the history"} {
		if counts[what] == 0 {
			t.Errorf("no history had: %s", what)
		}
	}
}

// TestAheadServes: a pod that was decided ahead gets the CPUs that were kept for it, and its plugin
// is not asked again for another pod's. One whose request differs is decided anew.
func TestAheadServes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*modelPod)
		same   bool
	}{
		"the same":        {func(*modelPod) {}, true},
		"another request": {func(p *modelPod) { p.wants.CPU = cpus(1); p.Resources = clone(&p.wants) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mo := newPooledOn(t, eight(t), cgroup.V2, faults{}, 1)
			mo.handle(mo.everything())
			mo.dress = dressGuaranteed
			f := &foreseen{mo: mo, pending: map[string]engine.PlannedPod{}}
			kept := ""
			mo.arrives = func(p *modelPod) {
				f.pending[p.UID] = plan(p)
				f.round(t)
				kept = conductor.Expects(mo.con)[p.UID+"/a"]
				test.change(p)
			}
			p := mo.runPod("", "", "")
			c := mo.create(p, "a")
			if c == nil || kept == "" {
				t.Fatalf("container %v, kept %q", c, kept)
			}
			mo.start(c)
			if got := mo.effective(c); (got == kept) != test.same {
				t.Errorf("kept %s, got %s", kept, got)
			}
			if left := conductor.Expects(mo.con); len(left) > 0 {
				t.Errorf("still expected: %v", left)
			}
			if len(mo.broken) > 0 {
				t.Error(mo.broken)
			}
		})
	}
}

// cpus is a request of whole CPUs.
func cpus(n uint64) lifecycle.CPU {
	return lifecycle.CPU{Shares: lifecycle.Some(1024 * n), Quota: lifecycle.Some(int64(100000 * n)), Period: lifecycle.Some[uint64](100000)}
}

// dressGuaranteed makes a Guaranteed pod of two CPUs.
func dressGuaranteed(p *modelPod) {
	p.wants = lifecycle.Resources{CPU: cpus(2), Memory: lifecycle.Memory{Limit: lifecycle.Some[int64](1 << 28)}}
	p.Resources = clone(&p.wants)
}
