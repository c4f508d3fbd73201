package hooks_test

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// equip adds the devices of a scenario's node to the guest: nodes below /dev, the sysfs directory of an RDMA card, and
// a CDI specification for each wanted device, which sets a variable in containers that get it.
func (n *machine) equip(s *scenario.Scenario) error {
	var b strings.Builder
	for _, at := range slices.Sorted(maps.Keys(s.Node.Devices)) {
		major, minor, _ := strings.Cut(s.Node.Devices[at], ":")
		fmt.Fprintf(&b, "mkdir -p %s; mknod -m 660 %s c %s %s\n", path.Dir(at), at, major, minor)
	}
	if len(s.Node.Verbs) > 0 {
		b.WriteString("mount -t tmpfs cards /sys/bus/pci/devices\n")
	}
	for _, address := range slices.Sorted(maps.Keys(s.Node.Verbs)) {
		fmt.Fprintf(&b, "mkdir -p /sys/bus/pci/devices/%s/infiniband_verbs/%s\n", address, s.Node.Verbs[address])
	}
	for _, at := range wantedSources(s) {
		if strings.Contains(path.Base(at), ".") {
			fmt.Fprintf(&b, "mkdir -p %s; touch %s\n", path.Dir(at), at)
		} else {
			fmt.Fprintf(&b, "mkdir -p %s\n", at)
		}
	}
	if names := wantedCDI(s); len(names) > 0 {
		fmt.Fprintf(&b, "mkdir -p /etc/cdi; cat >/etc/cdi/test.yaml <<'E'\ncdiVersion: 0.6.0\nkind: nvidia.com/gpu\ndevices:\n")
		for _, name := range names {
			_, device, _ := strings.Cut(name, "=")
			fmt.Fprintf(&b, "- {name: %q, containerEdits: {env: [%q]}}\n", device, cdiVariable(name)+"="+name)
		}
		b.WriteString("E\n")
	}
	if b.Len() == 0 {
		return nil
	}
	return n.sh(b.String())
}

// wantedSources returns the node's files and directories that scenarios mount.
func wantedSources(s *scenario.Scenario) []string {
	var all []string
	for _, step := range s.Steps {
		for _, w := range step.Want {
			all = slices.AppendSeq(all, maps.Values(w.Mounts))
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(source string) bool { return source == "" }) // nothing is mounted there
}

func wantedCDI(s *scenario.Scenario) []string {
	var names []string
	for _, step := range s.Steps {
		for _, w := range step.Want {
			names = append(names, w.CDI...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// cdiVariable is the variable in a container that has the device.
func cdiVariable(name string) string {
	return "CDI_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, name)
}

// givenCDI returns the names of a container's devices by its environment.
func givenCDI(env map[string]string) []string {
	var names []string
	for key, value := range env {
		if strings.HasPrefix(key, "CDI_") {
			names = append(names, value)
		}
	}
	return names
}
