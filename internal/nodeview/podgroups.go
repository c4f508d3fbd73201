package nodeview

import (
	"cmp"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
)

// PodGroup is a pod with a sandbox: its cgroup parent as the runtime names it, and its class
// and priority in Koordinator's terms.
type PodGroup struct {
	Namespace, Name, UID, CgroupParent string
	QoS, Priority                      string
}

// PodGroups lists the pods that have not ended.
func PodGroups(source Source) (out []PodGroup) {
	source.View(func(v *View) {
		for _, id := range v.State.Pods() {
			if p := v.State.Pod(id); !p.Stopped {
				out = append(out, groupOf(p))
			}
		}
	})
	return out
}

// groupOf describes a pod. Without labels, the pod gets the class and the priority that Koordinator assumes.
func groupOf(p *engine.Pod) PodGroup {
	g := PodGroup{Namespace: p.Pod.Namespace, Name: p.Pod.Name, UID: p.Pod.UID, CgroupParent: p.Pod.CgroupParent}
	usual := map[intent.QoS]string{intent.Guaranteed: "LSR", intent.Burstable: "LS", intent.BestEffort: "BE", intent.UnknownQoS: "LS"}
	switch class := p.Pod.Labels["koordinator.sh/qosClass"]; class {
	case "LSE", "LSR", "LS", "BE", "SYSTEM":
		g.QoS = class
	default:
		g.QoS = usual[p.Intent.QoS]
	}
	byClass := "koord-prod"
	if g.QoS == "BE" {
		byClass = "koord-batch"
	}
	g.Priority = cmp.Or(p.Pod.Labels["koordinator.sh/priority-class"], byClass)
	return g
}
