package agent

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

const head = "apiVersion: trimtab.io/v1alpha1\nkind: Config\n"

// TestDropIn: settings of a drop-in that arrive too late are reported and change nothing. Settings that
// repeat or omit a value are ignored, and all others are applied.
func TestDropIn(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		ignored    string
	}{
		{"nothing", "strict: true", ""},
		{"the same", "strict: true\nnri: {socket: /s}\ncgroup: {version: auto}", ""},
		{"keys of nri that apply at once", "strict: true\nnri: {updateIntervalMilliseconds: 7, cede: [cpu.shares]}", ""},
		{"paths", "strict: true\npaths: {state: /third}", "paths"},
		{"cgroup", "strict: true\ncgroup: {version: v1}", "cgroup"},
		{"http", "strict: true\nhttp: {address: '127.0.0.1:1'}", "http"},
		{"nri", "strict: true\nnri: {socket: /other, updateIntervalMilliseconds: 7}", "nri.socket"},
		{"more of nri", "strict: true\nnri: {disabledStages: [PreCreateContainer]}", "nri.disabledStages"},
		{"sections", "strict: true\nmode: observe\nattach: cri\ncluster: {enabled: true}", "attach, cluster"},
		{"mode", "strict: true\nmode: observe", "mode"},
		{"failure policy", "strict: true\nfailurePolicy: {agent: fail}", "failurePolicy.agent"},
		{"two", "strict: true\nnri: {name: x}\ncgroup: {root: /x}", "nri.name, cgroup"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := quietAgent(t)
			if err := a.settings.applyDropIn(head + tc.text); err != nil {
				t.Fatal(err)
			}
			said := a.Source().Status().ConfigError
			if (said == "") != (tc.ignored == "") || !strings.Contains(said, tc.ignored) {
				t.Errorf("told %q, want %q", said, tc.ignored)
			}
			if !a.settings.config.Strict || a.settings.config.Paths.State != a.opt.Config.Paths.State || a.settings.config.Cgroup != config.Default().Cgroup || a.settings.config.NRI.Socket != "/s" {
				t.Errorf("in force: %+v", a.settings.config)
			}
			if strings.Contains(tc.text, "Milliseconds: 7") && a.settings.config.NRI.UpdateInterval != 7 {
				t.Error("what can be heeded is not")
			}
			if err := a.settings.applyDropIn(head + "strict: true"); err != nil || a.Source().Status().ConfigError != "" {
				t.Errorf("after a drop-in without them: %v, %q", err, a.Source().Status().ConfigError)
			}
		})
	}
}

// TestDropInNeedsStartKeys: a drop-in that is valid only with start keys that do not apply is refused.
func TestDropInNeedsStartKeys(t *testing.T) {
	a := quietAgent(t)
	text := "cluster: {enabled: true}\nauthorization: [{kinds: [batch], namespaces: [\"*\"], namespaceSelector: team=db, decision: refuse}]\nstrict: true"
	err := a.settings.applyDropIn(head + text)
	if err == nil || !strings.Contains(err.Error(), "set cluster.enabled") || a.settings.config.Strict {
		t.Errorf("%v; in force: %+v", err, a.settings.config)
	}
	if said := a.Source().Status().ConfigError; !strings.Contains(said, "set cluster.enabled") {
		t.Errorf("the status has %q", said)
	}
	c := a.settings.config
	c.Strict = true
	if err := a.settings.applyFile(c); err != nil || !a.settings.config.Strict {
		t.Errorf("the file after a refused drop-in: %v; in force: %+v", err, a.settings.config)
	}
}

func quietAgent(t *testing.T) *Agent {
	t.Helper()
	m, err := describe.Parse("1s x 1n x 2c")
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := kernel.NewCgroups(cgroup.V2, "0-1", "0")
	if err != nil {
		t.Fatal(err)
	}
	c := config.Default()
	c.NRI.Socket, c.Paths.Key, c.Paths.State, c.Paths.StatusSocket = "/s", "", t.TempDir(), ""
	a, err := New(Options{Config: c, Log: slog.New(slog.DiscardHandler), Machine: m, Tree: &cgroup.Tree{FS: kernel, Version: cgroup.V2}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// TestLogFormatApplies: log.format applies at once, whatever sets it.
func TestLogFormatApplies(t *testing.T) {
	a := quietAgent(t)
	var got []string
	a.settings.setLogFormat = func(to string) { got = append(got, to) }
	for _, text := range []string{"log: {format: json}", "strict: true"} {
		if err := a.settings.applyDropIn(head + text); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff([]string{"json", "text"}, got); d != "" {
		t.Error(d)
	}
	if said := a.Source().Status().ConfigError; said != "" {
		t.Error(said)
	}
}
