package hooks_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/parity"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/test/vm"
)

// soak reports whether all tests run in every variation.
func soak() bool { return os.Getenv("TRIMTAB_SOAK") != "" }

// always has the scenarios and guests of every run, by attachment, with one pod of each kind. lifecycle_test.go has
// owners, batch and others on version 2 with four NUMA nodes, and on version 1; bypass_test.go plays bypass.
var enough = map[string][]string{
	"nri": {"tour/systemd"},
	"cri": {"tour/v2", "unset-quota/v1"},
}

// TestScenarios plays the scenarios of the embedded runtime on guests of their shape.
func TestScenarios(t *testing.T) {
	t.Parallel()
	playScenarios(t, parity.ByName("nri"))
}

// TestProxyScenarios plays them through the CRI proxy at its default socket. Values that the CRI cannot carry are
// written to the kernel, or they are not in force and reported.
func TestProxyScenarios(t *testing.T) {
	t.Parallel()
	playScenarios(t, parity.ByName("cri"))
}

// TestBypassScenarios plays them with bypass. Values that only a creation can set are not in force and reported.
func TestBypassScenarios(t *testing.T) {
	t.Parallel()
	playScenarios(t, parity.ByName("bypass"))
}

const scenarioFiles = "../../scenarios/*.yaml"

func scenarioName(file string) string { return strings.TrimSuffix(filepath.Base(file), ".yaml") }

func playScenarios(t *testing.T, at parity.Attachment) {
	t.Helper()
	files, err := filepath.Glob(scenarioFiles)
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		s, err := scenario.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		for j, g := range guests() {
			name, turn := scenarioName(file)+"/"+g.name, turnName(at.Name, scenarioName(file), g.name)
			why, always := unplayable(s), slices.Contains(enough[at.Name], name)
			if why == "" && !always && !soak() && !theTurns.Due(t, turn) {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				if why != "" {
					t.Skip(why)
				}
				if other := attachmentOn(scenarioName(file), j+1); soak() && other != at.Name { // in soak mode, the attachment of this guest
					t.Skipf("is played through %s", other)
				}
				if !soak() {
					theTurns.Note(t, turn)
				}
				playScenario(t, at, g, file)
			})
		}
	}
}

// playScenario plays a file in a new guest. It loads the file again, since playing changes the wants.
func playScenario(t *testing.T, at parity.Attachment, g variation, file string) {
	t.Helper()
	s, err := scenario.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	shape, err := shapeOf(s.Node)
	if err != nil {
		t.Fatal(err)
	}
	g.Topology = shape
	n := boot(t, g.Guest)
	n.at = at
	if at.Name == "bypass" {
		n.m.WithoutNRI()
	}
	if err := errors.Join(n.equip(s), n.configure(s.Config), n.attach()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d wants compared", play(t, n, s))
}

// unplayable returns why no guest can play a scenario, or "".
func unplayable(s *scenario.Scenario) string {
	switch {
	case s.NeedsKubelet():
		return "needs a kubelet that reports pod specs, which suite A's guests lack"
	case s.HasAnyClaims():
		return "needs a driver of resource claims, which the guests lack"
	case special(s.Node) || s.Node.Resctrl != nil || s.Node.CoreSched || len(s.Node.Disks) > 0:
		return "needs processors, cards or disks that the guests lack"
	case len(s.Node.HookFiles) > 0:
		return "needs the programs of OCI hooks, which the guests lack"
	case movesInterfaces(s):
		return "needs network interfaces that the guests lack"
	case s.LimitsBelowInit():
		return "needs memory limits in which runc's own init does not fit"
	case s.Node.Kernel != nil:
		return fmt.Sprintf("needs kernel files that Debian's kernels lack: %v", s.Node.Kernel)
	}
	if _, err := shapeOf(s.Node); err != nil {
		return err.Error()
	}
	return ""
}

// special reports whether a node has what no guest has. Guests do have memory without CPUs, and distances.
func special(n scenario.Node) bool {
	n.FarMemory, n.Distances = nil, nil
	return n.HasSpecialProperties()
}

// shapeOf makes the shape of a guest. Sizes of memory count only for a node with memory without CPUs or with distances.
func shapeOf(n scenario.Node) (vm.Topology, error) {
	shape, err := vm.ParseTopology(n.CPUs)
	if err != nil || len(n.FarMemory)+len(n.Distances) == 0 {
		return shape, err
	}
	m, err := sim.Machine(n, nil)
	if err != nil {
		return shape, err
	}
	var mib []int
	for _, node := range m.Nodes {
		mib = append(mib, int(node.Memory>>20))
	}
	return shape.WithMemory(mib, n.Distances)
}

// movesInterfaces reports whether a container of a scenario gets a network interface of the host.
func movesInterfaces(s *scenario.Scenario) bool {
	for _, step := range s.Steps {
		for _, w := range step.Want {
			for name, inside := range w.Process {
				if strings.HasPrefix(name, "net.device ") && inside != "" {
					return true
				}
			}
		}
	}
	return false
}

type variation struct {
	name string
	vm.Guest
}

// guests returns all guests: both cgroup versions, both cgroup drivers of kubelets, both kernels. No guest has version
// 1 under systemd.
func guests() []variation {
	return []variation{{"v2", vm.Guest{}}, {"v1", vm.Guest{CgroupV1: true}}, {"systemd", vm.Guest{Systemd: true}}, {"6.12", vm.Guest{Kernel: "6.12"}}}
}
