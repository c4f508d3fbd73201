package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/coresched"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/resctrl"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// observedScenarios have pools and owners, each policy, values of every kind of file, resizes,
// reconfigurations and restarts.
var observedScenarios = []string{"pools-resize", "balloons", "topology-aware", "koordinator-batch", "katalyst", "rdt", "rubik-preemptable", "nri-injector", "core-sched", "koordinator-gpu", "restarts"}

// writes counts what an agent writes. Its file systems refuse all of it.
type writes struct{ count atomic.Int64 }

func (w *writes) refuse() error {
	w.count.Add(1)
	return syscall.EROFS
}

type cgroupsOnly struct {
	cgroup.FS
	w *writes
}

func (f cgroupsOnly) WriteFile(string, []byte) error { return f.w.refuse() }

type resctrlOnly struct {
	resctrl.FS
	w *writes
}

func (f resctrlOnly) WriteFile(string, []byte) error { return f.w.refuse() }
func (f resctrlOnly) Mkdir(string) error             { return f.w.refuse() }
func (f resctrlOnly) Rmdir(string) error             { return f.w.refuse() }

type cookiesOnly struct {
	coresched.Kernel
	w *writes
}

func (f cookiesOnly) Create(int) error     { return f.w.refuse() }
func (f cookiesOnly) Share(int, int) error { return f.w.refuse() }

// observing is one play with an agent that observes.
type observing struct {
	writes   writes
	answers  []string // the results of NRI's events; without a plugin they repeat the request
	comparer requestComparer
	states   []map[scenario.Ref]string // of all containers, after each step
	observed *api.Observed
}

// options are how the scenario is played.
func (o *observing) options(t *testing.T, attach string) sim.RunOptions {
	t.Helper()
	r := sim.RunOptions{
		Log:       slog.New(slog.NewTextHandler(t.Output(), nil)),
		Patience:  time.Minute,
		Configure: func(c *config.Config) { c.Mode = "observe" },
		Agent: func(a sim.AgentOptions) (sim.Agent, error) {
			a.Tree = &cgroup.Tree{FS: cgroupsOnly{a.Tree.FS, &o.writes}, Version: a.Tree.Version}
			if a.Resctrl != nil {
				a.Resctrl = resctrlOnly{a.Resctrl, &o.writes}
			}
			if a.Cookies != nil {
				a.Cookies = cookiesOnly{a.Cookies, &o.writes}
			}
			return NewAgent(a)
		},
		AlterStep: func(s *scenario.Step) { s.Want, s.Balloons, s.Rejected = nil, nil, "" },
		Observe: func(e sim.Event) {
			if e.Kind == "Synchronize" && e.Err == nil && len(e.Updates) == 0 { // there is none beside the runtime
				return
			}
			text := fmt.Sprintf("%s %s: %v, %v", e.Kind, e.Ref, e.Adjust, e.Err)
			for _, u := range e.Updates {
				text += fmt.Sprintf("; %s %v %v", u.Ref, u.Resources, u.Err)
			}
			o.answers = append(o.answers, strings.Join(strings.Fields(strings.ReplaceAll(text, "memory:{}", "")), " "))
		},
		AfterStep: func(_ int, r *sim.Runtime, _ status.Source) {
			now := map[scenario.Ref]string{}
			for _, c := range r.Containers() {
				state, err := r.State(c.Ref)
				spec, _ := r.Spec(c.Ref)
				text, _ := json.Marshal([]any{state, spec})
				now[c.Ref] = fmt.Sprint(strings.ReplaceAll(string(text), `,"oomScoreAdj":0`, ""), err) // which only the CRI has
			}
			o.states = append(o.states, now)
		},
		AtEnd: func(n api.Node) error { o.observed = n.Observed; return nil },
	}
	if attach != "nri" {
		r.Connector = &criConnector{attach: attach, comparer: &o.comparer}
	}
	return r
}

// TestObserve: with mode observe no attachment changes anything: the agent writes no kernel file,
// its answers over NRI are empty, the runtime receives each request as the kubelet sent it, and
// containers are as they are without Trimtab in the path (bypass).
func TestObserve(t *testing.T) { //nolint:tparallel // the parts of the test use one machine in turn
	t.Parallel()
	differ := atomic.Int64{}
	t.Run("scenarios", func(t *testing.T) {
		for i, name := range observedScenarios {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var bare *observing
				for _, attach := range []string{"bypass", "nri", "cri", "hooks"} {
					s, err := scenario.Load("../scenarios/" + name + ".yaml")
					if err != nil {
						t.Fatal(err)
					}
					s.Node.Cgroup = [2]string{"v2", "v1"}[i%2]
					o := &observing{}
					if err := sim.Run(t.Context(), s, o.options(t, attach)); err != nil {
						if unmet := (*sim.UnmetError)(nil); !errors.As(err, &unmet) {
							t.Fatalf("%s: %v", attach, err)
						}
					}
					if n := o.writes.count.Load(); n > 0 {
						t.Errorf("%s: the agent wrote %d times", attach, n)
					}
					if attach != "nri" {
						if left := o.comparer.changed(); len(left) > 0 || o.comparer.unchangedCount == 0 {
							t.Errorf("%s: %d requests arrived; the runtime did not receive as they were sent: %s", attach, o.comparer.unchangedCount, strings.Join(left, "; "))
						}
					}
					if bare == nil {
						bare = o
					}
					compareStates(t, attach, bare.states, o.states)
					if d := cmp.Diff(bare.answers, o.answers); d != "" {
						t.Errorf("%s: NRI's events have other results than beside the runtime (-bypass +%s):\n%s", attach, attach, d)
					}
					if o.observed == nil {
						t.Errorf("%s: the agent says that it enforces", attach)
					} else {
						differ.Add(int64(o.observed.Differ))
					}
				}
			})
		}
	})
	if differ.Load() == 0 {
		t.Error("no scenario ended with a difference")
	}
}

// compareStates compares the containers of two plays after each step.
func compareStates(t *testing.T, attach string, want, got []map[scenario.Ref]string) {
	t.Helper()
	if len(want) != len(got) {
		t.Errorf("%s: %d steps instead of %d", attach, len(got), len(want))
		return
	}
	for i := range want {
		if d := cmp.Diff(slices.Sorted(maps.Keys(want[i])), slices.Sorted(maps.Keys(got[i]))); d != "" {
			t.Errorf("%s: step %d: other containers (-bypass +%s):\n%s", attach, i+1, attach, d)
		}
		for ref, state := range want[i] {
			if got[i][ref] != state {
				t.Errorf("%s: step %d: %s is\n%s\nand beside the runtime\n%s", attach, i+1, ref, got[i][ref], state)
			}
		}
	}
}
