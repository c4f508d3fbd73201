package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/config"
)

// TestHooksAsConfigured: a hook is judged by the kernel features that its configured options need, not by
// those of the defaults.
func TestHooksAsConfigured(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"sys/fs/cgroup/cgroup.controllers": "cpu io memory", "sys/fs/cgroup/cgroup.subtree_control": "cpu io memory",
		"sys/fs/cgroup/kubepods/cgroup.subtree_control": "cpu io memory", "sys/fs/cgroup/kubepods/io.max": "",
		"sys/fs/cgroup/kubepods/cpu.weight": "100", "sys/fs/resctrl/schemata": "L3:0=fff",
	} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		must(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o644))
	}
	for _, tt := range []struct {
		hook string
		set  func(c *config.Config)
		want string
	}{
		{"blockIO", func(*config.Config) {}, "effective: "},
		{"blockIO", func(c *config.Config) { c.Hooks.BlockIO.BEWeight = 10 }, "not effective: this kernel has no io.weight or io.bfq.weight"},
		{"rdt", func(*config.Config) {}, "effective: "},
		{"rdt", func(c *config.Config) { c.Hooks.RDT.Measure = true }, "not effective: there is no /sys/fs/resctrl/info/L3_MON"},
		{"preemption", func(*config.Config) {}, "effective: "},
		{"preemption", func(c *config.Config) { c.Hooks.Preemption.MemoryHigh = 80 }, "not effective: this kernel has no memory.high"},
		{"preemption", func(c *config.Config) { c.Hooks.Preemption.Yield = "none" }, "effective: cpu.weight"},
	} {
		c := config.Default()
		c.Hooks.BlockIO.Enabled, c.Hooks.RDT.Enabled, c.Hooks.Preemption.Enabled = true, true, true
		tt.set(&c)
		found := ""
		for _, got := range checkHooks(cgroups{host{root: root}, c.Cgroup}, c) {
			if got.Name == "hook "+tt.hook {
				found = got.Found
			}
		}
		if !strings.HasPrefix(found, tt.want) {
			t.Errorf("%s: %q, want %q", tt.hook, found, tt.want)
		}
	}
}
