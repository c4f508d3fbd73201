package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/internal/topology/sysfs"
)

// TestCheckCPUClasses: 'config check --node host' names each CPU class that the CPUs lack, with its line. Without
// --node, and for another node, it knows no hardware.
func TestCheckCPUClasses(t *testing.T) {
	t.Parallel()
	m, err := sysfs.Read(os.DirFS(config.Default().Paths.Sys))
	if err != nil {
		t.Fatal(err)
	}
	cpus, err := topology.ParseList(m.Format(m.Online()))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := kernel.NewCPUFiles(kernel.CPUHardware{}, cpus).WriteTo(filepath.Join(dir, "cpu")); err != nil {
		t.Fatal(err)
	}
	before := fmt.Sprintf("%spaths: {cpu: %s/cpu}\nplacement:\n  policy: balloons\n  balloons:\n    idleCPUClass: good\n    cpuClasses:\n", header, dir)
	const good = "    - {name: good, minFreq: min, maxFreq: turbo, freqGovernor: powersave, energyPerformancePreference: power, disabledCstates: [C6]}\n"
	first := strings.Count(before, "\n") + 1 // the line of the first class
	for name, c := range map[string]struct {
		classes string
		node    string
		code    int
		says    []string
	}{
		"what the hardware has": {good, "host", exitOK, nil},
		"all that it lacks": {
			good +
				"    - {name: governed, freqGovernor: schedutil}\n    - {name: hot, minFreq: base, maxFreq: 9GHz}\n" +
				"    - {name: saving, energyPerformancePreference: eco}\n    - name: deep\n      disabledCstates: [C6, C9]\n",
			"host", exitUsage, []string{
				":%d: placement.balloons.cpuClasses[1]: class governed: CPU 0: the hardware does not have the governor schedutil; it has performance powersave",
				":%d: placement.balloons.cpuClasses[2]: class hot: CPU 0: maxFreq 9000000 kHz is outside the range of the hardware: 800000 to 3500000 kHz",
				":%d: placement.balloons.cpuClasses[3]: class saving: CPU 0: the hardware does not have the energy preference eco; it has",
				":%d: placement.balloons.cpuClasses[4]: class deep: CPU 0: the CPU has no C-state C9; it has POLL, C1, C6",
			},
		},
		"without a node": {good + "    - {name: hot, maxFreq: 9GHz}\n", "", exitOK, nil},
		"another node":   {good + "    - {name: hot, maxFreq: 9GHz}\n", "2s x 8c", exitOK, nil},
	} {
		file := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(file, []byte(before+c.classes), 0o600); err != nil {
			t.Fatal(err)
		}
		args := []string{"config", "check", file}
		if c.node != "" {
			args = append(args, "--node", c.node)
		}
		var out bytes.Buffer
		code := run(t.Context(), invocation{name: "trimtab", args: args, in: strings.NewReader(""), out: &out, err: &out})
		if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); code != c.code || len(lines) != max(len(c.says), 1) {
			t.Errorf("%s: exit code %d, want %d\n%s", name, code, c.code, out.String())
		}
		for i, says := range c.says {
			says = fmt.Sprintf(says, first+1+i)
			if !strings.Contains(out.String(), file+says) || !strings.Contains(out.String(), "leave these CPUs as they are") {
				t.Errorf("%s: want %s in\n%s", name, says, out.String())
			}
		}
	}
}
