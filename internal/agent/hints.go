package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/topology"
)

// wholeCPUHints returns a hint about planned containers to which the kubelet's static policy would assign exclusive
// CPUs, but Trimtab would not. These are containers that request whole CPUs in a Guaranteed pod without a Trimtab
// class.
func wholeCPUHints(c config.Config, wishes []engine.PlannedPod, planned []api.Container) []string {
	if c.Authority != "agent" || !c.Hooks.CPUSet.Enabled {
		return nil
	}
	how := "give the pod the label koordinator.sh/qosClass: LSR, or set placement.wholeCPUs: guaranteed"
	switch {
	case c.Placement.Policy == "none":
		how = "set placement.policy: pools, and " + how
	case c.Placement.Policy != "pools" || c.Placement.WholeCPUs != "never":
		return nil
	}
	whole := map[string]bool{}
	for i := range wishes {
		for j := range wishes[i].Containers {
			ctr := &wishes[i].Containers[j]
			whole[ctr.ID] = wishes[i].Spec.QoS == intent.Guaranteed.String() && engine.WholeCPUs(&ctr.Resources) > 0
		}
	}
	var names []string
	for _, p := range planned {
		if whole[p.ID] && p.Class == intent.None.String() && p.ClassFrom == "" && p.CPUGroup != "exclusive" {
			names = append(names, p.Pod+"/"+p.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s: the pod is Guaranteed and requests whole CPUs, but gets no exclusive CPUs: %s", shortList(names), how)}
}

// shortList joins names to a list. It shows only the first ones of many names.
func shortList(names []string) string {
	const most = 4
	if n := len(names) - most; n > 1 {
		names = append(names[:most:most], fmt.Sprintf("and %d others", n))
	}
	return strings.Join(names, ", ")
}

// sharingHints returns a hint about planned containers whose pod has no Trimtab class. With placement.reclaim:
// leftover, some CPUs are for batch work, and containers without a class also run on these CPUs.
func sharingHints(c config.Config, planned []api.Container) []string {
	p := c.Placement
	if c.Authority != "agent" || !c.Hooks.CPUSet.Enabled || p.Policy != "pools" || p.Reclaim != "leftover" {
		return nil
	}
	var names []string
	for i := range planned {
		if planned[i].CPUGroup == placement.Unclassified.String() {
			names = append(names, planned[i].Pod+"/"+planned[i].Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []string{shortList(names) + ": a container without a class also runs on the CPUs of batch work: " +
		"give the pod the label koordinator.sh/qosClass: LS, or set hooks.cpuset.unlabelled: shared"}
}

// hugePageHints returns hints about planned pods that request huge pages of a size that no NUMA node has reserved. The
// kubelet refuses such pods, but the agent's plan does not check huge pages.
func hugePageHints(m *topology.Machine, wishes []engine.PlannedPod) (all []string) {
	for i := range wishes {
		for _, c := range wishes[i].Spec.Containers {
			for _, name := range slices.Sorted(maps.Keys(c.Requests)) {
				size, pages := intent.HugepageSize(name)
				if !pages || c.Requests[name] <= 0 || slices.ContainsFunc(m.Nodes, func(n topology.Node) bool { return n.HugePages[size] > 0 }) {
					continue
				}
				all = append(all, fmt.Sprintf("%s/%s/%s requests %s, but no NUMA node has reserved such pages: the kubelet will refuse the pod",
					wishes[i].Pod.Namespace, wishes[i].Pod.Name, c.Name, name))
			}
		}
	}
	return all
}
