package nodeview

import (
	"cmp"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
)

// PodCgroup is the cgroup of a pod that has a sandbox: the cgroup parent as the runtime names it, and the pod's class
// and priority in Koordinator's terms.
type PodCgroup struct {
	Namespace, Name, UID, CgroupParent string
	QoS, Priority                      string
}

// PodCgroups lists the cgroups of the pods that have not ended.
func PodCgroups(source Source) (out []PodCgroup) {
	source.View(func(v *View) {
		for _, id := range v.State.Pods() {
			if p := v.State.Pod(id); !p.Stopped {
				out = append(out, podCgroupOf(p))
			}
		}
	})
	return out
}

// podCgroupOf describes the cgroup of a pod. Without labels, the pod gets the class and the priority that Koordinator
// assumes.
func podCgroupOf(p *engine.Pod) PodCgroup {
	g := PodCgroup{Namespace: p.Pod.Namespace, Name: p.Pod.Name, UID: p.Pod.UID, CgroupParent: p.Pod.CgroupParent}
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
