package recorded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/agent/simulated"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

func TestMain(m *testing.M) {
	sim.SetNRILog(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// TestRecorded plays each scenario with both cgroup versions and compares the result with the recording.
func TestRecorded(t *testing.T) {
	t.Parallel()
	book := Open(t, "testdata/scenarios.sha256")
	files, err := sim.Files("../scenarios")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scenarios, %v", len(files), err)
	}
	for _, file := range files {
		if slices.Contains([]string{"rubik-live.yaml", "kubelet-podresources.yaml", "balloons-devices.yaml"}, filepath.Base(file)) {
			continue // pods are decided again, and refused updates sent again, in an order that depends on random kubelet polls
		}
		for _, v := range []string{"v1", "v2"} {
			name := v + " nri " + strings.TrimSuffix(filepath.Base(file), ".yaml")
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s, err := scenario.Load(file)
				if err != nil {
					t.Fatal(err)
				}
				s.Node.Cgroup = v
				var text *Text
				synctest.Test(t, func(t *testing.T) { text = playScenario(t, s) })
				book.AddItem(t, name, text)
			})
		}
	}
}

// drained is a time after which no work is left: the runtime's copies are updated, drift is repaired, and the
// checkpoint is saved.
const drained = 10 * time.Second

// playing is a scenario during its play and recording.
type playing struct {
	text  *Text
	dir   string
	agent status.Source // the journal has been read up to seq
	seq   uint64
}

func playScenario(t *testing.T, s *scenario.Scenario) *Text {
	t.Helper()
	p := &playing{text: &Text{}}
	err := sim.Run(t.Context(), s, sim.RunOptions{
		InMemory: true, Patience: time.Minute, Agent: newAgent, BeforeStart: p.ready, AfterStep: p.after,
		Observe: func(e sim.Event) {
			if e.Kind != "Synchronize" { // the answer comes before the change is applied, in no fixed order
				p.text.AddJSON("runtime", e)
			}
		},
		ResourcesSent: func(e sim.SentUpdate) { p.text.AddJSON("sent", e) },
	})
	if unmet := (*sim.UnmetError)(nil); errors.As(err, &unmet) {
		p.text.AddJSON("unmet", unmet.Wants) // after such a long pause some wants of a scenario may not hold
	} else if err != nil {
		t.Error(err)
	}
	return p.text
}

func newAgent(o sim.AgentOptions) (sim.Agent, error) {
	kernel, fake := o.Tree.FS.(*kernel.Cgroups)
	if !fake {
		return nil, errors.New("the tree is not in memory")
	}
	options := simulated.Options(o)
	options.Polls, options.FreeMemory = true, func() {}
	options.Watch = func() (cgroup.Watcher, error) { return watch(kernel), nil }
	return agent.New(options)
}

// key signs records.
const key = "a key of the test, 32 bytes long"

// ready gives the agent a key, since records are signed.
func (p *playing) ready(k *kernel.Cgroups, dir string) error {
	p.dir = dir
	p.text.Hide(dir)
	p.text.RecordWrites(k)
	return os.WriteFile(filepath.Join(dir, "record.key"), []byte(key), 0o600)
}

// after waits until no work is left, and records the result of a step.
func (p *playing) after(step int, r *sim.Runtime, source status.Source) {
	time.Sleep(drained)
	synctest.Wait()
	p.text.AddLine("after step %d", step+1)
	if p.agent != source {
		p.agent, p.seq = source, 0
	}
	events, _ := source.Events(context.Background(), p.seq)
	if n := len(events); n > 0 {
		p.seq = events[n-1].Seq
	}
	p.text.AddEvents(events)
	for _, c := range r.Containers() {
		spec, _ := r.Spec(c.Ref)
		p.text.AddJSON("stored "+string(c.Ref), spec.Linux.Resources)
		state, err := r.State(c.Ref)
		text := strings.Replace(fmt.Sprintf("%+v", state), " Process:map[]", "", 1) // older recordings do not have the field
		p.text.AddLine("in force %s %s %v", c.Ref, text, err)
	}
	for _, pod := range r.Pods() {
		namespace, name, _ := pod.Names()
		reported, _ := source.Explain(namespace, name, "")
		p.text.AddJSON("explain "+string(pod), reported)
	}
	p.text.AddStatus(source.Status())
	data, err := os.ReadFile(filepath.Join(p.dir, "state", "checkpoint.json"))
	if err == nil {
		p.text.AddCheckpoint(data)
	}
}
