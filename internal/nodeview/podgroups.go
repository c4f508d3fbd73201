package nodeview

import (
	"cmp"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
)

// PodCgroup is the cgroup of a pod that has a sandbox, with the class and the priority that the pod has in Koordinator.
type PodCgroup struct {
	Namespace, Name, UID string
	CgroupParent         string // as the runtime names it
	QoS, Priority        string // such as "LS" and "koord-prod"
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

// podCgroupOf describes the cgroup of a pod. If the pod has no labels for class and priority, the result has those that
// Koordinator assumes for such a pod.
func podCgroupOf(p *engine.Pod) PodCgroup {
	g := PodCgroup{Namespace: p.Pod.Namespace, Name: p.Pod.Name, UID: p.Pod.UID, CgroupParent: p.Pod.CgroupParent}
	defaults := map[intent.QoS]string{intent.Guaranteed: "LSR", intent.Burstable: "LS", intent.BestEffort: "BE", intent.UnknownQoS: "LS"}
	switch class := p.Pod.Labels["koordinator.sh/qosClass"]; class {
	case "LSE", "LSR", "LS", "BE", "SYSTEM":
		g.QoS = class
	default:
		g.QoS = defaults[p.Intent.QoS]
	}
	defaultPriority := "koord-prod"
	if g.QoS == "BE" {
		defaultPriority = "koord-batch"
	}
	g.Priority = cmp.Or(p.Pod.Labels["koordinator.sh/priority-class"], defaultPriority)
	return g
}
