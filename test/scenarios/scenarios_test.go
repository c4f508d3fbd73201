package scenarios

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/agent/simulated"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

func TestMain(m *testing.M) {
	sim.SetNRILog(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

func newAgent(o sim.AgentOptions) (sim.Agent, error) {
	options := simulated.Options(o)
	options.FreeMemory = func() {}
	return agent.New(options)
}

// TestScenarios plays each file as it is written, and again with the other cgroup version and driver: the
// expected results are the same in all four.
func TestScenarios(t *testing.T) {
	t.Parallel()
	files, err := sim.Files(".")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scenarios, %v", len(files), err)
	}
	for _, file := range files {
		for _, cgroup := range []string{"v1", "v2"} {
			for _, driver := range []string{"cgroupfs", "systemd"} {
				t.Run(strings.TrimSuffix(file, ".yaml")+"/"+cgroup+"/"+driver, func(t *testing.T) {
					t.Parallel()
					s, err := scenario.Load(file)
					if err != nil {
						t.Fatal(err)
					}
					s.Node.Cgroup, s.Node.Driver = cgroup, driver
					shown := &strings.Builder{}
					if err := sim.Run(t.Context(), s, sim.RunOptions{Out: shown, Agent: newAgent, Patience: time.Minute}); err != nil {
						t.Errorf("%v\n%s", err, shown)
					}
				})
			}
		}
	}
}

// TestEveryWantIsCited checks that no expected number comes from the tested code: each names the table row
// or rule that it comes from.
func TestEveryWantIsCited(t *testing.T) {
	files, err := sim.Files(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		s, err := scenario.Load(file)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, step := range s.Steps {
			for ref, want := range step.Want {
				if want.From == "" {
					t.Errorf("%s: step %q: %s does not say where it comes from", file, step.Name, ref)
				}
			}
		}
	}
}
