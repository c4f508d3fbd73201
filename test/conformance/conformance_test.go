package conformance

import (
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trimtab/trimtab/internal/parity"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

func TestMain(m *testing.M) {
	sim.SetNRILog(slog.New(slog.DiscardHandler))
	flag.Parse()
	if n := flag.Lookup("test.parallel"); n.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) { // nobody chose it
		_ = flag.Set("test.parallel", strconv.Itoa(3*runtime.GOMAXPROCS(0))) // plays wait most of their time
	}
	debug.SetGCPercent(400) // the tests need much CPU time and little memory
	goleak.VerifyTestMain(m)
}

// eachScenario runs a test for each scenario, cgroup version and cgroup driver.
func eachScenario(t *testing.T, test func(t *testing.T, load func() *scenario.Scenario)) {
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

// TestEngineAlone compares the engine's decisions with the wants of the scenarios.
func TestEngineAlone(t *testing.T) {
	t.Parallel()
	eachScenario(t, func(t *testing.T, load func() *scenario.Scenario) {
		t.Helper()
		s := load()
		for i, o := range outcomes(t, s, true) {
			for ref, want := range s.Steps[i].Want {
				d, decided := o.Containers[ref]
				if ref.Container() == "" {
					d, decided = o.Pods[ref]
				}
				if !decided {
					continue // refused, or stopped
				}
				want.Cookie = nil // the kernel chooses the number
				sim.Compare(want, d.State, func(format string, args ...any) {
					t.Errorf("step %d (%s): %s: %s [%s]", i+1, s.Steps[i].Name, ref, fmt.Sprintf(format, args...), want.From)
				})
			}
		}
	})
}

// outcomes plays a scenario through the engine alone. moves: containers get the network interfaces of the host that the
// engine decides.
func outcomes(t *testing.T, s *scenario.Scenario, moves bool) []Outcome {
	t.Helper()
	e, err := NewEngine(s)
	if err != nil {
		t.Fatal(err)
	}
	e.movesInterfaces = moves
	all, err := e.Play()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestParity plays every scenario through every attachment. After each step the scenario's wants must hold, and the
// effective state of each container must equal what the engine decides.
func TestParity(t *testing.T) {
	t.Parallel()
	eachScenario(t, func(t *testing.T, load func() *scenario.Scenario) {
		t.Helper()
		want := map[bool][]Outcome{true: outcomes(t, load(), true)}
		if want[false] = want[true]; load().Node.Interfaces != nil {
			want[false] = outcomes(t, load(), false)
		}
		for _, p := range Players() {
			if load().HasCPUClaims() && slices.Contains(p.Attachment.Limits, parity.NoClaims) {
				continue
			}
			t.Run(p.Attachment.Name, func(t *testing.T) {
				t.Parallel()
				shown := &strings.Builder{}
				if err := play(t, load(), p, want[p.movesInterfaces()], shown); err != nil {
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
	// Where a limit shows, the values in force differ from the records: later changes are only in the checkpoint file.
	differs := slices.ContainsFunc(p.LimitSteps, func(l LimitStep) bool { return l.Scenario == s.Name && l.DifferingContainer != "" })
	o := sim.RunOptions{
		Out: shown, Log: log, Patience: time.Minute,
		Agent: NewAgent, KeepState: !p.Attachment.AddsRecords() || differs,
		AlterStep: m.alter, WantAtStart: p.Attachment.WantAtStart, ExtraCheck: m.check,
	}
	if p.Connector != nil {
		o.Connector = p.Connector()
	}
	return o
}

// match is one play of a scenario and its expected result for a player.
type match struct {
	p       Player
	s       *scenario.Scenario
	want    []Outcome
	differs map[scenario.Ref]bool // because of a limit of the attachment
}

// alter removes from a step the wants that the attachment declares it cannot set.
func (m *match) alter(s *scenario.Step) {
	fails := ""
	for _, l := range m.p.LimitSteps {
		if l.Scenario != m.s.Name || l.Step != s.Name || l.Cgroup != "" && l.Cgroup != m.s.Node.Cgroup {
			continue
		}
		fails = l.ErrorText
		if l.DifferingContainer != "" {
			m.differs[l.DifferingContainer] = true
		}
	}
	m.p.Attachment.RemoveUnsupported(s)
	if fails != "" {
		s.Rejected = fails
	}
	maps.DeleteFunc(s.Want, func(ref scenario.Ref, _ scenario.Want) bool { return m.differs[ref] })
}

func (m *match) check(step int, r *sim.Runtime, agent status.Source) []string {
	want := m.want[step]
	want.Containers = maps.Clone(want.Containers)
	maps.DeleteFunc(want.Containers, func(ref scenario.Ref, _ Decision) bool { return m.differs[ref] })
	return Compare(m.p.Attachment, &want, m.differs, r, agent)
}
