package conformance

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

func TestMain(m *testing.M) {
	sim.SetNRILog(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

// everywhere runs a test for each scenario with either cgroup version and
// driver.
func everywhere(t *testing.T, test func(t *testing.T, load func() *scenario.Scenario)) {
	t.Helper()
	files, err := sim.Files("../scenarios")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scenarios, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(file[strings.LastIndex(file, "/")+1:], ".yaml")
		for _, at := range []struct{ cgroup, driver string }{{"v1", "cgroupfs"}, {"v2", "systemd"}} {
			t.Run(name+"/"+at.cgroup+"-"+at.driver, func(t *testing.T) {
				t.Parallel()
				test(t, func() *scenario.Scenario {
					s, err := scenario.Load(file)
					if err != nil {
						t.Fatal(err)
					}
					s.Node.Cgroup, s.Node.Driver = at.cgroup, at.driver
					return s
				})
			})
		}
	}
}

// TestEngineAlone holds what the engine alone decides against what scenarios
// want.
func TestEngineAlone(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, load func() *scenario.Scenario) {
		t.Helper()
		s := load()
		for i, o := range outcomes(t, s) {
			for ref, want := range s.Steps[i].Want {
				d, decided := o.Containers[ref]
				if ref.Container() == "" {
					d, decided = o.Pods[ref]
				}
				if !decided {
					continue // refused, or stopped
				}
				want.Cookie = nil // a number is the kernel's choice
				sim.Compare(want, d.State, func(format string, args ...any) {
					t.Errorf("step %d (%s): %s: %s [%s]", i+1, s.Steps[i].Name, ref, fmt.Sprintf(format, args...), want.From)
				})
			}
		}
	})
}

// outcomes plays a scenario through the engine alone.
func outcomes(t *testing.T, s *scenario.Scenario) []Outcome {
	t.Helper()
	e, err := NewEngine(s)
	if err != nil {
		t.Fatal(err)
	}
	all, err := e.Play()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestParity plays every scenario through every attachment. After each step what
// is wanted must be so, and the state of each container must be what the engine
// alone says.
func TestParity(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, load func() *scenario.Scenario) {
		t.Helper()
		want := outcomes(t, load())
		for _, p := range Players() {
			t.Run(p.Attachment.Name, func(t *testing.T) {
				t.Parallel()
				shown := &strings.Builder{}
				if err := play(t, load(), p, want, shown); err != nil {
					t.Errorf("%v\n%s", err, shown)
				}
			})
		}
	})
}

func play(t *testing.T, s *scenario.Scenario, p Player, want []Outcome, shown *strings.Builder) error {
	t.Helper()
	m := match{p: p, s: s, want: want, differs: map[scenario.Ref]bool{}}
	return sim.Run(t.Context(), s, m.options(shown, slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))))
}

// options are how the scenario is played.
func (m *match) options(shown *strings.Builder, log *slog.Logger) sim.RunOptions {
	p, s := m.p, m.s
	// Where a limit shows, what is in force and what the records say are not the same: what came after them is in a file.
	differs := slices.ContainsFunc(p.Shows, func(l Shown) bool { return l.Scenario == s.Name && l.Differs != "" })
	o := sim.RunOptions{
		Out: shown, Log: log,
		Agent: NewAgent, KeepState: !p.Attachment.Stamps() || differs,
		Alter: m.alter, First: p.Attachment.First, Also: m.look,
	}
	if p.Seat != nil {
		o.Seat = p.Seat()
	}
	return o
}

// match is one play of a scenario, as a player must come out.
type match struct {
	p       Player
	s       *scenario.Scenario
	want    []Outcome
	differs map[scenario.Ref]bool // by a limit that showed
}

// alter takes from a step what the attachment declares it cannot set.
func (m *match) alter(s *scenario.Step) {
	fails := ""
	for _, l := range m.p.Shows {
		if l.Scenario != m.s.Name || l.Step != s.Name || l.Cgroup != "" && l.Cgroup != m.s.Node.Cgroup {
			continue
		}
		fails = l.Fails
		if l.Differs != "" {
			m.differs[l.Differs] = true
		}
	}
	m.p.Attachment.Alter(s)
	if fails != "" {
		s.Rejected = fails
	}
	maps.DeleteFunc(s.Want, func(ref scenario.Ref, _ scenario.Want) bool { return m.differs[ref] })
}

func (m *match) look(step int, r *sim.Runtime, agent status.Source) []string {
	want := m.want[step]
	want.Containers = maps.Clone(want.Containers)
	maps.DeleteFunc(want.Containers, func(ref scenario.Ref, _ Decided) bool { return m.differs[ref] })
	return Compare(m.p.Attachment, &want, m.differs, r, agent)
}
