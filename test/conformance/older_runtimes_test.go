package conformance

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/trimtab/trimtab/internal/parity"
	"github.com/trimtab/trimtab/internal/runtimes"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// TestOlderRuntimes plays every scenario with each runtime release that accepts less than the newest one. No creation
// and no update of the kubelet may fail because of what Trimtab sends. Trimtab sends nothing that the table of runtimes
// lists as unsupported. make test plays NRI and one other attachment in turn; make soak plays all of them.
func TestOlderRuntimes(t *testing.T) {
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
			claims := load(t).HasCPUClaims()
			name := strings.TrimSuffix(file[strings.LastIndex(file, "/")+1:], ".yaml")
			for k, p := range Players() {
				if p.Attachment.Name == "hooks" && kind != sim.CRIO || p.Attachment.Name == "bypass" && kind == sim.Containerd17 {
					continue // the proxy behaves the same; without events, bypass lists once a minute
				}
				if claims && slices.Contains(p.Attachment.Limits, parity.NoClaims) {
					continue
				}
				if !soak && p.Attachment.Name != "nri" && (i+j+k)%3 != 0 {
					continue // make soak plays the others
				}
				t.Run(fmt.Sprintf("%s/%s/%s-%s", name, kind.Name, p.Attachment.Name, at.cgroup), func(t *testing.T) {
					t.Parallel()
					loaded := load
					if claims && p.Attachment.Name == "bypass" && kind == sim.CRIO {
						loaded = func(t *testing.T) *scenario.Scenario { t.Helper(); return unseenClaims(load(t)) }
					}
					playWithRuntime(t, loaded, p, kind)
				})
			}
		}
	}
}

func playWithRuntime(t *testing.T, load func(*testing.T) *scenario.Scenario, p Player, kind sim.Kind) {
	t.Helper()
	r := kind.Runtime(p.Attachment.Name == "nri")
	p.Attachment = p.Attachment.WithRuntime(r)
	var sent sentTo
	shown := &strings.Builder{}
	s := load(t)
	m := match{p: p, s: s, want: outcomes(t, load(t), p.movesInterfaces()), differs: map[scenario.Ref]bool{}}
	o := m.options(shown, slog.New(slog.DiscardHandler))
	o.Kind, o.ResourcesSent = kind, func(s sim.SentUpdate) { sent.check(r, s) }
	if err := sim.Run(t.Context(), s, o); err != nil {
		t.Errorf("%v\n%s", err, shown)
	}
	for _, why := range sent.wrong {
		t.Error(why)
	}
}

// sentTo collects what was sent although the runtime does not support it.
type sentTo struct {
	mu    sync.Mutex
	wrong []string
}

func (s *sentTo) check(r runtimes.Runtime, sent sim.SentUpdate) {
	for _, v := range sent.Values() {
		if why := r.WhyNotAccepted(sent.By, sent.Call, v); why != "" {
			s.mu.Lock()
			s.wrong = append(s.wrong, fmt.Sprintf("%s: %s was sent: %s", sent.By, v.Field, why))
			s.mu.Unlock()
		}
	}
}

// unseenClaims leaves out the problems of devices of claims that a pod has by the runtime's request alone. CRI-O shows
// bypass no such devices, and the kubelet reports those of its own claims.
func unseenClaims(s *scenario.Scenario) *scenario.Scenario {
	for i := range s.Steps {
		for _, ref := range []scenario.Ref{"default/thief/a", "default/lost/a"} {
			if want, is := s.Steps[i].Want[ref]; is {
				want.Problems = nil
				s.Steps[i].Want[ref] = want
			}
		}
	}
	return s
}
