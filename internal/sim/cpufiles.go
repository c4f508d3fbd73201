package sim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/cpuclass"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology"
)

// filesOfCPUs returns the node's cpufreq and cpuidle files; nil if the scenario lacks node.cpuFreq.
func (p *nodeParts) filesOfCPUs() cpuclass.FS {
	if p.cpuFiles == nil {
		return nil
	}
	return p.cpuFiles
}

// checkCPUs compares the cpufreq and cpuidle files with the wants of a step.
func (p *nodeParts) checkCPUs(s *scenario.Step) (unmet []string) {
	for _, list := range slices.Sorted(maps.Keys(s.WantCPUs)) {
		cpus, err := topology.ParseList(list)
		if err != nil || p.cpuFiles == nil {
			return append(unmet, fmt.Sprintf("wantCPUs: CPUs %q: the list is not valid, or the scenario lacks node.cpuFreq", list))
		}
		want := s.WantCPUs[list]
		for _, cpu := range cpus {
			for _, file := range slices.Sorted(maps.Keys(want)) {
				text, err := p.cpuFiles.Read(fmt.Sprintf("cpu%d/%s", cpu, file))
				if err != nil || text != want[file] {
					unmet = append(unmet, fmt.Sprintf("CPU %d: file %s is %q (read error: %v), wanted %q", cpu, file, text, err, want[file]))
				}
			}
		}
	}
	return unmet
}
