package intent

import (
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// readKubernetes reads the QoS class, which the kubelet writes into the pod's
// cgroup parent in both naming schemes.
func readKubernetes(t *texts, _ *lifecycle.PodSpec, out *Pod) {
	out.QoS = qosOf(t.parent)
}

func qosOf(parent string) QoS {
	switch {
	case strings.Contains(parent, "besteffort"):
		return BestEffort
	case strings.Contains(parent, "burstable"):
		return Burstable
	}
	return Guaranteed
}
