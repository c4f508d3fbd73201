package cpuclass_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/cpuclass"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sim/kernel"
)

// node is a node whose CPUs get classes.
type node struct {
	files *kernel.CPUFiles
	w     *cpuclass.Writer
	saved []byte
	fails error // of saving
	boot  string
	now   time.Time
}

func newNode(t testing.TB, h kernel.CPUHardware, cpus ...int) *node {
	t.Helper()
	n := &node{files: kernel.NewCPUFiles(h, cpus), now: time.Unix(1, 0)}
	n.restart(t)
	return n
}

// restart replaces the agent by one that has what the last one saved.
func (n *node) restart(t interface{ Fatal(args ...any) }) {
	save := func(data []byte) error {
		if n.fails == nil {
			n.saved = data
		}
		return n.fails
	}
	var err error
	if n.w, err = cpuclass.New(cpuclass.Options{Files: n.files, Saved: n.saved, Boot: n.boot, Save: save, Now: func() time.Time { return n.now }}); err != nil {
		t.Fatal(err)
	}
}

// expect compares files below cpuN/.
func (n *node) expect(t *testing.T, when string, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for file := range want {
		got[file], _ = n.files.Read(file)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s: %s", when, d)
	}
}

var (
	slow = lifecycle.CPUClass{Name: "slow", MaxFreq: "1000000", Governor: "powersave", EnergyPreference: "power"}
	fast = lifecycle.CPUClass{Name: "fast", MinFreq: "turbo", MaxFreq: "turbo", Governor: "performance", DisabledCStates: []string{"C6"}}
)

func of(c lifecycle.CPUClass, cpus ...int) cpuclass.WantedClass {
	return cpuclass.WantedClass{Class: c, CPUs: cpus}
}

func faults(r cpuclass.Report) (all []string) {
	for _, f := range r.Faults {
		all = append(all, f.Class+": "+f.Reason)
	}
	return all
}

func TestApply(t *testing.T) {
	t.Parallel()
	n := newNode(t, kernel.CPUHardware{}, 0, 1, 2)
	before := n.files.Texts()
	if r := n.w.Apply([]cpuclass.WantedClass{of(fast, 1), of(slow, 2)}); len(r.Faults) > 0 {
		t.Fatal(faults(r))
	}
	n.expect(t, "two classes", map[string]string{
		"cpu0/cpufreq/scaling_governor": "powersave", "cpu0/cpuidle/state2/disable": "0",
		"cpu1/cpufreq/scaling_governor": "performance", "cpu1/cpufreq/scaling_min_freq": "3500000", "cpu1/cpufreq/scaling_max_freq": "3500000",
		"cpu1/cpuidle/state1/disable": "0", "cpu1/cpuidle/state2/disable": "1",
		"cpu2/cpufreq/scaling_governor": "powersave", "cpu2/cpufreq/scaling_max_freq": "1000000", "cpu2/cpufreq/energy_performance_preference": "power",
	})
	n.files.AcceptedWrites = nil
	n.w.Apply([]cpuclass.WantedClass{of(fast, 1), of(slow, 0, 2)})
	for _, line := range n.files.AcceptedWrites {
		if !strings.HasPrefix(line, "cpufreq/policy0/") {
			t.Errorf("wrote %s, although only the class of CPU 0 changed", line)
		}
	}
	n.w.Apply([]cpuclass.WantedClass{of(slow, 1)})
	n.w.Apply(nil)
	if d := cmp.Diff(before, n.files.Texts()); d != "" {
		t.Errorf("not restored: %s", d)
	}
	if got := n.w.OriginalCount(); got != 0 {
		t.Errorf("%d originals are left", got)
	}
}

// TestLacks: a class that the hardware lacks changes no file.
func TestLacks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		class lifecycle.CPUClass
		want  string
	}{
		"governor":       {lifecycle.CPUClass{Governor: "schedutil", MaxFreq: "900000"}, "the hardware does not have the governor schedutil; it has performance powersave"},
		"too low":        {lifecycle.CPUClass{MinFreq: "100000", Governor: "performance"}, "minFreq 100000 kHz is outside the range of the hardware: 800000 to 3500000 kHz"},
		"too high":       {lifecycle.CPUClass{MaxFreq: "9000000", Governor: "performance"}, "maxFreq 9000000 kHz is outside the range"},
		"preference":     {lifecycle.CPUClass{EnergyPreference: "eco", Governor: "performance"}, "the hardware does not have the energy preference eco"},
		"C-state":        {lifecycle.CPUClass{DisabledCStates: []string{"C6", "C9"}, Governor: "performance"}, "the CPU has no C-state C9; it has POLL, C1, C6"},
		"base":           {lifecycle.CPUClass{MinFreq: "base", MaxFreq: "min", Governor: "performance"}, "the lowest frequency would be 2000000 kHz, which is above the highest frequency, 800000 kHz"},
		"by the kernel":  {lifecycle.CPUClass{Governor: "performance", MaxFreq: "1234567"}, "invalid argument"},
		"not in force":   {lifecycle.CPUClass{Governor: "performance", EnergyPreference: "power", MaxFreq: "900000"}, `energy_performance_preference has "performance" after the agent wrote "power"`},
		"highest of all": {lifecycle.CPUClass{MinFreq: "turbo"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, kernel.CPUHardware{}, 0)
			n.files.Refuse = func(_, text string) error {
				if text == "1234567" {
					return syscall.EINVAL
				}
				return nil
			}
			before := n.files.Texts()
			r := n.w.Apply([]cpuclass.WantedClass{of(c.class, 0)})
			got := strings.Join(faults(r), "\n")
			if c.want == "" != (got == "") || !strings.Contains(got, c.want) {
				t.Fatalf("faults are %q, want %q", got, c.want)
			}
			if d := cmp.Diff(before, n.files.Texts()); d != "" && c.want != "" {
				t.Errorf("half applied: %s", d)
			}
			n.w.Repair([]cpuclass.WantedClass{of(c.class, 0)})
			if d := cmp.Diff(before, n.files.Texts()); d != "" && c.want != "" {
				t.Errorf("half applied at the repair: %s", d)
			}
		})
	}
}

// TestRefusedOnce: a class that the kernel refused is tried again after a pause.
func TestRefusedOnce(t *testing.T) {
	t.Parallel()
	n := newNode(t, kernel.CPUHardware{}, 0)
	busy := true
	n.files.Refuse = func(string, string) error {
		if busy {
			return syscall.EBUSY
		}
		return nil
	}
	want := []cpuclass.WantedClass{of(slow, 0)}
	if r := n.w.Apply(want); len(r.Faults) != 1 {
		t.Fatal(faults(r))
	}
	busy = false
	if r := n.w.Repair(want); len(r.Faults) != 1 {
		t.Fatal(faults(r))
	}
	n.now = n.now.Add(3 * time.Minute)
	if r := n.w.Repair(want); len(r.Faults) != 0 {
		t.Fatal(faults(r))
	}
	n.expect(t, "later", map[string]string{"cpu0/cpufreq/scaling_max_freq": "1000000"})
}

// TestRepair: what another program changes is written again, counted and named.
func TestRepair(t *testing.T) {
	t.Parallel()
	n := newNode(t, kernel.CPUHardware{}, 0)
	want := []cpuclass.WantedClass{of(slow, 0)}
	n.w.Apply(want)
	if err := n.files.Write("cpu0/cpufreq/scaling_max_freq", "3500000"); err != nil {
		t.Fatal(err)
	}
	r := n.w.Repair(want)
	if r.Repairs != 1 || r.LastRepair != `cpufreq/policy0/scaling_max_freq had "3500000" instead of "1000000"` {
		t.Errorf("%d repairs, the last: %s", r.Repairs, r.LastRepair)
	}
	n.expect(t, "repaired", map[string]string{"cpu0/cpufreq/scaling_max_freq": "1000000"})
	if r := n.w.Repair(want); r.Repairs != 1 {
		t.Errorf("%d repairs without a change", r.Repairs)
	}
}

// TestSharedPolicy: all CPUs of a cpufreq policy have the class of the balloon that has some of them. If two
// balloons of different classes have CPUs of one policy, that is a fault.
func TestSharedPolicy(t *testing.T) {
	t.Parallel()
	n := newNode(t, kernel.CPUHardware{PerPolicy: 2}, 0, 1, 2, 3)
	before := n.files.Texts()
	idle := of(slow, 1, 2, 3)
	idle.Idle = true
	if r := n.w.Apply([]cpuclass.WantedClass{idle, of(fast, 0)}); len(r.Faults) > 0 {
		t.Fatal(faults(r))
	}
	n.expect(t, "idle", map[string]string{
		"cpu0/cpufreq/scaling_governor": "performance", "cpu1/cpufreq/scaling_governor": "performance", "cpu1/cpuidle/state2/disable": "1",
		"cpu3/cpufreq/scaling_max_freq": "1000000",
	})
	r := n.w.Apply([]cpuclass.WantedClass{of(slow, 1), of(fast, 0)})
	if got := faults(r); len(got) != 1 || !strings.Contains(got[0], "CPUs 0-1 share one cpufreq policy, so they cannot have the classes fast and slow at the same time") {
		t.Error(got)
	}
	if d := cmp.Diff(before, n.files.Texts()); d != "" {
		t.Error(d)
	}
}

// TestUnsaved: nothing is written while originals cannot be saved.
func TestUnsaved(t *testing.T) {
	t.Parallel()
	n := newNode(t, kernel.CPUHardware{}, 0)
	n.fails = errors.New("disk full")
	r := n.w.Apply([]cpuclass.WantedClass{of(slow, 0)})
	if got := faults(r); len(got) != 1 || !strings.Contains(got[0], "disk full") || len(n.files.AcceptedWrites) > 0 {
		t.Error(got, n.files.AcceptedWrites)
	}
	n.fails = nil
	if r := n.w.Apply([]cpuclass.WantedClass{of(slow, 0)}); len(r.Faults) > 0 || len(n.files.AcceptedWrites) == 0 {
		t.Error(faults(r), n.files.AcceptedWrites)
	}
}

// TestReboot: after a reboot the kernel has its own values, and saved ones do not count.
func TestReboot(t *testing.T) {
	t.Parallel()
	n := newNode(t, kernel.CPUHardware{}, 0)
	n.w.Apply([]cpuclass.WantedClass{of(slow, 0)})
	n.restart(t)
	if n.w.OriginalCount() == 0 {
		t.Error("a restart lost the originals")
	}
	n.boot = "another"
	if n.restart(t); n.w.OriginalCount() != 0 {
		t.Error("originals of another boot count")
	}
}

// TestUnavailableFS: a node without these files gives no class, and says why.
func TestUnavailableFS(t *testing.T) {
	t.Parallel()
	w, err := cpuclass.New(cpuclass.Options{Files: cpuclass.UnavailableFS(errors.New("no such directory")), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	if got := faults(w.Apply([]cpuclass.WantedClass{of(slow, 0)})); len(got) != 1 || got[0] != "slow: no such directory" {
		t.Error(got)
	}
	if _, err := cpuclass.Open(t.TempDir() + "/missing"); err == nil || errors.Is(cpuclass.UnavailableFS(err).Write("x", ""), fs.ErrNotExist) {
		t.Errorf("a directory that is missing looks like a file that the kernel lacks: %v", err)
	}
}

// TestDirectory uses real files, with the links that sysfs has.
func TestDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := kernel.NewCPUFiles(kernel.CPUHardware{}, []int{0, 1}).WriteTo(dir); err != nil {
		t.Fatal(err)
	}
	files, err := cpuclass.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	w, err := cpuclass.New(cpuclass.Options{Files: files, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	if r := w.Apply([]cpuclass.WantedClass{of(fast, 1)}); len(r.Faults) > 0 {
		t.Fatal(faults(r))
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	got := []string{read("cpu0/cpufreq/scaling_governor"), read("cpu1/cpufreq/scaling_governor"), read("cpu1/cpuidle/state2/disable")}
	if want := []string{"powersave", "performance", "1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	w.Apply(nil)
	if got := read("cpu1/cpufreq/scaling_governor"); got != "powersave" {
		t.Errorf("restored %q", got)
	}
	lacks := cpuclass.Check(files, []lifecycle.CPUClass{fast, {Name: "x", Governor: "ondemand"}}, []int{0, 1})
	if len(lacks) != 1 || !strings.HasPrefix(lacks["x"], "CPU 0: the hardware does not have the governor ondemand") {
		t.Error(lacks)
	}
}
