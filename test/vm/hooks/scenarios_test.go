package hooks_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/parity"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/test/vm"
)

func TestMain(m *testing.M) { vm.Main(m) }

// soak says that everything is to be run, in every variation.
func soak() bool { return os.Getenv("TRIMTAB_SOAK") != "" }

// enough are the files and machines that every change is held to, by attachment: one pod of each kind. The
// crowds of lifecycle_test.go have owners, batch and others on version 2 with four NUMA nodes, and on version 1;
// beside_test.go plays bypass.
var enough = map[string][]string{
	"nri": {"tour/systemd"},
	"cri": {"tour/v2", "unset-quota/v1"},
}

// TestScenarios plays the files that the embedded runtime plays, on a machine of the shape they name.
func TestScenarios(t *testing.T) {
	t.Parallel()
	playScenarios(t, parity.Named("nri"))
}

// TestProxyScenarios plays them through the CRI proxy, by the defaults of both sides. What the CRI cannot carry must not
// be in force, and is written to the kernel or reported.
func TestProxyScenarios(t *testing.T) {
	t.Parallel()
	playScenarios(t, parity.Named("cri"))
}

func playScenarios(t *testing.T, at parity.Attachment) {
	t.Helper()
	files, err := filepath.Glob("../../scenarios/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for i, file := range files {
		s, err := scenario.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		for j, g := range variations() {
			name := strings.TrimSuffix(filepath.Base(file), ".yaml") + "/" + g.name
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				switch other := map[string]string{"nri": "cri", "cri": "nri"}[at.Name]; {
				case slices.Contains(enough[at.Name], name):
				case !soak():
					t.Skip("make soak plays it, or the same through the other attachment")
				case turn(i, j) != at.Name:
					t.Skipf("is played through %s", other)
				}
				if s.NeedsKubelet() {
					t.Skip("needs a kubelet that tells pods' specs, which suite A's guests have not")
				}
				if s.Node.Special() || s.Node.Resctrl != nil || s.Node.CoreSched || len(s.Node.Disks) > 0 {
					t.Skip("needs processors, cards or disks that the guests have not")
				}
				if s.LimitsBelowInit() {
					t.Skip("needs memory limits in which runc's own init does not fit")
				}
				if s.Node.Kernel != nil {
					t.Skipf("needs kernel files that Debian's kernels have not: %v", s.Node.Kernel)
				}
				shape, err := vm.Shaped(s.Node.CPUs)
				if err != nil {
					t.Skip(err)
				}
				g.Topology = shape
				n := boot(t, g.Guest)
				n.at = at
				if err := errors.Join(n.equip(s), n.configure(s.Config), n.attach()); err != nil {
					t.Fatal(err)
				}
				t.Logf("%d wants compared", play(t, n, s))
			})
		}
	}
}

// turn says through which attachment a file is played on a machine: each file is through both, and each machine has
// both. What is left of all combinations is in no way particular, and would take hours.
func turn(file, machine int) string { return []string{"nri", "cri"}[(file+machine)%2] }

type variation struct {
	name string
	vm.Guest
}

// variations are all there are. There is no guest with v1 under systemd.
func variations() []variation {
	return []variation{{"v2", vm.Guest{}}, {"v1", vm.Guest{CgroupV1: true}}, {"systemd", vm.Guest{Systemd: true}}}
}
