package agent

import (
	"fmt"
	"strings"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/report/api"
)

// hints says how planned containers would get CPUs of their own that request whole CPUs in a Guaranteed pod, as the
// kubelet's static policy wants it, and that nothing asks to own any.
func hints(c config.Config, wishes []engine.PlannedPod, planned []api.Container) []string {
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
	return []string{fmt.Sprintf("%s: Guaranteed with whole CPUs, and nothing asks for CPUs of its own: %s", strings.Join(names, ", "), how)}
}
