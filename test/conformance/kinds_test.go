package conformance

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/trimtab/trimtab/internal/runtimes"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// TestKinds plays every scenario beside each runtime that takes less than the
// newest, which refuses as the real one does. No creation and no update of the
// kubelet's may fail by what Trimtab sends, and nothing is sent that the table of
// runtimes says the runtime does not take. All attachments but NRI take turns in make
// test; make soak plays all of them.
func TestKinds(t *testing.T) {
	t.Parallel()
	files, err := sim.Files("../scenarios")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scenarios, %v", len(files), err)
	}
	soak := os.Getenv("TRIMTAB_SOAK") != ""
	for i, file := range files {
		for j, kind := range sim.Kinds() {
			at := []struct{ cgroup, driver string }{{"v1", "cgroupfs"}, {"v2", "systemd"}}[(i+j)%2]
			load := func(t *testing.T) *scenario.Scenario {
				t.Helper()
				s, err := scenario.Load(file)
				if err != nil {
					t.Fatal(err)
				}
				s.Node.Cgroup, s.Node.Driver = at.cgroup, at.driver
				return s
			}
			name := strings.TrimSuffix(file[strings.LastIndex(file, "/")+1:], ".yaml")
			for k, p := range Players() {
				if p.Attachment.Name == "hooks" && kind != sim.CRIO || p.Attachment.Name == "bypass" && kind == sim.Containerd17 {
					continue // the proxy is the same; without events lists are read once a minute
				}
				if !soak && p.Attachment.Name != "nri" && (i+j+k)%3 != 0 {
					continue // the others' turn is in make soak
				}
				t.Run(fmt.Sprintf("%s/%s/%s-%s", name, kind.Name, p.Attachment.Name, at.cgroup), func(t *testing.T) {
					t.Parallel()
					playBeside(t, load, p, kind)
				})
			}
		}
	}
}

func playBeside(t *testing.T, load func(*testing.T) *scenario.Scenario, p Player, kind sim.Kind) {
	t.Helper()
	r := kind.Runtime(p.Attachment.Name == "nri")
	p.Attachment = p.Attachment.Beside(r)
	var sent sentTo
	shown := &strings.Builder{}
	s := load(t)
	m := match{p: p, s: s, want: outcomes(t, load(t)), differs: map[scenario.Ref]bool{}}
	o := m.options(shown, slog.New(slog.DiscardHandler))
	o.Kind, o.Sent = kind, func(s sim.Sent) { sent.check(r, s) }
	if err := sim.Run(t.Context(), s, o); err != nil {
		t.Errorf("%v\n%s", err, shown)
	}
	for _, why := range sent.wrong {
		t.Error(why)
	}
}

// sentTo gathers what was sent and is not taken.
type sentTo struct {
	mu    sync.Mutex
	wrong []string
}

func (s *sentTo) check(r runtimes.Runtime, sent sim.Sent) {
	for _, v := range sent.Values() {
		if why := r.Takes(sent.By, sent.Call, v); why != "" {
			s.mu.Lock()
			s.wrong = append(s.wrong, fmt.Sprintf("%s: %s was sent: %s", sent.By, v.Field, why))
			s.mu.Unlock()
		}
	}
}
