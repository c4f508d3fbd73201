package intent

import (
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// readKubernetes reads the Kubernetes QoS class of the pod.
func readKubernetes(t *podTexts, spec *lifecycle.PodSpec, out *Pod) {
	out.QoS = qosOf(t.parent, spec)
}

// qosOf returns the QoS class from the cgroup parent, where the kubelet writes it with both cgroup drivers.
// Without a cgroup parent, no kubelet made the pod's cgroup, so only the spec has the class.
func qosOf(parent string, spec *lifecycle.PodSpec) QoS {
	switch {
	case parent == "":
		if spec == nil {
			return UnknownQoS
		}
		for _, q := range []QoS{Guaranteed, Burstable, BestEffort} {
			if spec.QoS == q.String() {
				return q
			}
		}
		return UnknownQoS
	case strings.Contains(parent, "besteffort"):
		return BestEffort
	case strings.Contains(parent, "burstable"):
		return Burstable
	}
	return Guaranteed
}
