package nri

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// carriers are runtimes as they identify themselves, with the fields that each ignores.
var carriers = []struct {
	name, release, stated string
	lacks                 []lifecycle.Field
	about                 string
}{
	{"containerd", "v1.7.0", "", slices.Concat(both, nri03), "containerd v1.7.0 (NRI v0.3.0)"},
	{"containerd", "v1.7.20", "", slices.Concat(both, nri06), "containerd v1.7.20 (NRI v0.6.1)"},
	{"containerd", "1.7.25~ds1", "", slices.Concat(both, nri06), "containerd 1.7.25~ds1 (NRI v0.6.1)"},
	{"containerd", "v1.7.31-k3s1", "", nri06, "containerd v1.7.31-k3s1 (NRI v0.8.0)"},
	{"containerd", "v1.7.26", "", slices.Concat(noCDI, nri06), "containerd v1.7.26 (NRI v0.8.0)"},
	{"containerd", "v1.7.29", "", slices.Concat(noCDI, nri06), "containerd v1.7.29 (NRI v0.8.0)"},
	{"containerd", "v1.7.30", "", nri06, "containerd v1.7.30 (NRI v0.8.0)"},
	{"containerd", "v1.7.34", "", nri06, "containerd v1.7.34 (NRI v0.8.0)"},
	{"containerd", "v2.0.7", "", slices.Concat(noCDI, nri06), "containerd v2.0.7 (NRI v0.8.0)"},
	{"containerd", "v2.1.0", "", nri06, "containerd v2.1.0 (NRI v0.8.0)"},
	{"containerd", "v2.4.2", "v0.12.3", nil, "containerd v2.4.2 (NRI v0.12.3)"},
	{"containerd", "devel", "v0.12.3", nil, "containerd devel (NRI v0.12.3)"},
	{"cri-o", "1.31.4", "", slices.Concat(both, nri06), "cri-o 1.31.4 (NRI v0.6.1)"},
	{"cri-o", "1.32.0", "", slices.Concat(noCDI, nri06), "cri-o 1.32.0 (NRI v0.9.0)"},
	{"cri-o", "1.34.2", "", nri010, "cri-o 1.34.2 (NRI v0.10.0)"},
	{"v2", "2.0.0-beta.2+unknown", "", iSulad, "v2 2.0.0-beta.2+unknown (NRI release unknown)"},
	{"an-unknown-runtime", "1.0", "v0.10.0", nri010, "an-unknown-runtime 1.0 (NRI v0.10.0)"},
}

var (
	both  = []lifecycle.Field{lifecycle.CDIDevice, lifecycle.OOMScoreAdj}
	noCDI = []lifecycle.Field{lifecycle.CDIDevice}
	// The fields that NRI 0.10 lacks, those that 0.6 to 0.9 lack, and those that 0.3 lacks.
	nri010 = []lifecycle.Field{lifecycle.ProcessSched, lifecycle.SysctlEntry, lifecycle.NetDevice, lifecycle.IntelRDT, lifecycle.MemPolicy}
	nri06  = slices.Concat([]lifecycle.Field{lifecycle.ProcessIO}, nri010)
	nri03  = slices.Concat([]lifecycle.Field{lifecycle.ProcessLimit}, nri06)
	iSulad = slices.Insert(slices.Concat(both, []lifecycle.Field{lifecycle.BlockIOClass, lifecycle.RDTClass}, nri03), 9, lifecycle.InjectedHook)
)

// The embedded runtime reports the release of its NRI library.
func TestEmbeddedRelease(t *testing.T) {
	mod, err := os.ReadFile("../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if want := "github.com/containerd/nri v" + EmbeddedRelease + "\n"; !strings.Contains(string(mod), want) {
		t.Errorf("go.mod does not have %q: update EmbeddedRelease", want)
	}
	if p := newPeer(EmbeddedRuntime, EmbeddedRelease, ""); p.missingFields() != nil || p.about != "trimtab-sim 0.12.5 (NRI 0.12.5)" {
		t.Errorf("%s lacks %v", p.about, p.missingFields())
	}
}

// TestPiggybacks: with CRI-O a creation fails if an update in the same answer fails.
func TestPiggybacks(t *testing.T) {
	for name, want := range map[string]bool{"containerd": true, EmbeddedRuntime: true, "cri-o": false, "": false} {
		if newPeer(name, "1.0.0", "").capabilities().Piggybacks != want {
			t.Errorf("%q takes updates of others along: %v", name, !want)
		}
	}
}

func TestLacks(t *testing.T) {
	for _, tc := range carriers {
		p := newPeer(tc.name, tc.release, tc.stated)
		if d := cmp.Diff(tc.lacks, p.missingFields()); d != "" || p.about != tc.about {
			t.Errorf("%s %s: about %q\n%s", tc.name, tc.release, p.about, d)
		}
	}
	if d := cmp.Diff(slices.Concat(both, nri03), New(Options{}).MissingFields()); d != "" {
		t.Errorf("a runtime nothing is known of:\n%s", d)
	}
}

// TestCarriesWhatTheRuntimeObeys: the capabilities are correct for every event, also after a newer runtime
// has replaced the first one.
func TestCarriesWhatTheRuntimeObeys(t *testing.T) {
	for _, tc := range carriers {
		t.Run(tc.name+tc.release, func(t *testing.T) {
			var lacks []lifecycle.Field
			var a *Attachment
			r := &recorder{answer: func(_ context.Context, ev lifecycle.Event) (conductor.Answer, error) {
				for _, s := range settableFields {
					if ev.Kind == lifecycle.CreateContainer && !a.Capabilities().Create.Has(s.field) {
						lacks = append(lacks, s.field)
					}
				}
				return conductor.Answer{}, nil
			}}
			var w *wire
			a, w, _ = wired(t, Options{Handler: r})
			configure(t, w, &api.ConfigureRequest{RuntimeName: tc.name, RuntimeVersion: tc.release, NRIVersion: tc.stated})
			if _, err := w.plugin.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: aPod(), Container: aContainer()}); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.lacks, lacks); d != "" {
				t.Error(d)
			}
			if got := a.About(); got != tc.about {
				t.Errorf("about %q", got)
			}
		})
	}
}
