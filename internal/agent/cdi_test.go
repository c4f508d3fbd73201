package agent

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestCDIDevices: specifications are read again after a change, a fault is logged once, and no directory of this node
// is read for a described host.
func TestCDIDevices(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var logged bytes.Buffer
	o := Options{Config: config.Default(), Log: slog.New(slog.NewTextHandler(&logged, nil))}
	o.Config.Paths.CDI = []string{dir}
	specs := cdiSpecsOf(o)
	read := specs.devices
	if got := read(); len(got) != 0 {
		t.Errorf("devices are %v", got)
	}
	write("a.yaml", `{cdiVersion: 0.6.0, kind: v.com/gpu, devices: [{name: x, containerEdits: {deviceNodes: [{path: /dev/null}]}}]}`)
	write("b.yaml", "{")
	for range 2 {
		if got := read(); len(got) != 1 || got[0].Name != "v.com/gpu=x" || got[0].Nodes[0].Minor != 3 {
			t.Errorf("devices are %v", got)
		}
	}
	write("c.yaml", `{cdiVersion: 0.6.0, kind: v.com/nic, devices: [{name: y, containerEdits: {env: [A=1]}}]}`)
	if got := read(); len(got) != 2 {
		t.Errorf("devices are %v", got)
	}
	if by, faults := specs.variables(); len(by) != 2 || !slices.Equal(by["v.com/nic=y"], []string{"A=1"}) || len(faults) != 1 || !strings.Contains(faults[0], "b.yaml") {
		t.Errorf("variables are %v, faults %q", by, faults)
	}
	if text := logged.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "b.yaml") {
		t.Errorf("logged %s", text)
	}
	o.Host = &lifecycle.Host{CDI: []lifecycle.NodeDevice{{Name: "v.com/gpu=described"}}}
	if got := cdiSpecsOf(o).devices(); len(got) != 1 || got[0].Name != "v.com/gpu=described" {
		t.Errorf("devices of a described host are %v", got)
	}
}

// TestPlacesOfClaims: an agent that cannot see CDI specifications or the kubelet's claims says so, once it needs them.
func TestPlacesOfClaims(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing")
	const noSpecs, noClaims = "no directory of CDI specifications exists", "the directory of the kubelet's claims does not exist"
	for name, c := range map[string]struct {
		change func(*config.Config)
		want   []string
	}{
		"nothing needs them":     {func(c *config.Config) {}, nil},
		"classes":                {func(c *config.Config) { c.Hooks.CDIDevices.Classes = []string{"v.com/gpu"} }, []string{noSpecs}},
		"claims":                 {func(c *config.Config) { c.Authority = "dra" }, []string{noSpecs, noClaims}},
		"claims without names":   {func(c *config.Config) { c.Authority, c.Paths.DRACheckpoint = "dra", "" }, []string{noSpecs}},
		"one directory is there": {func(c *config.Config) { c.Authority, c.Paths.CDI = "dra", []string{missing, dir} }, []string{noClaims}},
	} {
		var logged bytes.Buffer
		o := Options{Config: config.Default(), Log: slog.New(slog.NewTextHandler(&logged, nil))}
		o.Config.Paths.CDI, o.Config.Paths.DRACheckpoint = []string{missing}, filepath.Join(missing, "state")
		c.change(&o.Config)
		warnOfMissingDirs(o)
		for _, text := range []string{noSpecs, noClaims} {
			if got, want := strings.Contains(logged.String(), text), slices.Contains(c.want, text); got != want {
				t.Errorf("%s: logged %q: %v, want %v", name, text, got, want)
			}
		}
	}
}
