package agent

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/statefile"
)

// TestReleaseCPUsAlone: without an agent a release restores the cpufreq and cpuidle files from the values that the
// agent sealed, and seals what is left for the next agent. It names files that it cannot restore, and uses no values of
// others.
func TestReleaseCPUsAlone(t *testing.T) {
	t.Parallel()
	const governor, lowest = "cpufreq/policy0/scaling_governor", "cpufreq/policy1/scaling_min_freq"
	for name, c := range map[string]struct {
		originals map[string]string
		change    func(sealed []byte) []byte
		given     int
		failed    string
		err       string
		want      string
	}{
		"restored":           {originals: map[string]string{governor: "powersave"}, given: 1, want: "powersave"},
		"its CPUs are gone":  {originals: map[string]string{governor: "powersave", lowest: "800000"}, given: 1, failed: "1 files do not have", want: "powersave"},
		"written by another": {originals: map[string]string{governor: "powersave"}, change: func(s []byte) []byte { return []byte(strings.Replace(string(s), "powersave", "userspace", 1)) }, err: "damaged", want: "performance"},
		"without a seal":     {originals: map[string]string{governor: "powersave"}, change: func([]byte) []byte { return []byte(`{"files":{}}`) }, err: "no signature", want: "performance"},
		"nothing was stored": {want: "performance"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cfg := config.Default()
			cfg.Paths.State, cfg.Paths.Key, cfg.Paths.CPU = filepath.Join(dir, "state"), filepath.Join(dir, "key/record.key"), filepath.Join(dir, "cpu")
			put := func(path, text string) {
				t.Helper()
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			put(filepath.Join(cfg.Paths.CPU, "cpufreq/policy0/affected_cpus"), "0")
			put(filepath.Join(cfg.Paths.CPU, governor), "performance")
			key := strings.Repeat("k", keySize)
			put(cfg.Paths.Key, key)
			stored := filepath.Join(cfg.Paths.State, cpuClassesFile)
			put(filepath.Join(cfg.Paths.State, "other"), "")
			if c.originals != nil {
				text, err := json.Marshal(map[string]any{"boot": bootID(), "files": c.originals})
				if err != nil {
					t.Fatal(err)
				}
				text = statefile.Sign([]byte(key), cpuClassesFile, text)
				if c.change != nil {
					text = c.change(text)
				}
				put(stored, string(text))
			}
			given, failed, err := releaseCPUClasses(cfg, stateDirectory(nil, cfg.Paths.State))
			if given != c.given || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%d restored, %v; want %d, %q", given, err, c.given, c.err)
			}
			if (len(failed) > 0) != (c.failed != "") || len(failed) > 0 && !strings.Contains(failed[0].Why, c.failed) {
				t.Errorf("not restored: %v, want %q", failed, c.failed)
			}
			if is, err := os.ReadFile(filepath.Join(cfg.Paths.CPU, governor)); err != nil || strings.TrimSpace(string(is)) != c.want {
				t.Errorf("the governor is %q (%v), want %s", is, err, c.want)
			}
			if c.given > 0 {
				left, err := os.ReadFile(stored)
				if err == nil {
					err = statefile.VerifySignature([]byte(key), cpuClassesFile, left)
				}
				if err != nil || strings.Contains(string(left), governor) || strings.Contains(string(left), lowest) != (c.failed != "") {
					t.Errorf("stored is %s (%v)", left, err)
				}
			}
		})
	}
}
