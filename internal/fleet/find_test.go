package fleet

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestAgentOf: a pod without an agent, but with the socket of an agent that is a systemd unit, is
// recognised by its command.
func TestAgentOf(t *testing.T) {
	for command, unit := range map[string]bool{"agent": false, "idle": true} {
		p := corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: Container, Args: []string{command, "--config", "/f.yaml"}}}}}
		a, ours := agentOf(p)
		if !ours || a.RunsAsUnit != unit || a.Config != "/f.yaml" {
			t.Errorf("%s: %+v, ours %v", command, a, ours)
		}
	}
	if a, ours := agentOf(corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "other"}}}}); ours {
		t.Errorf("another pod is %+v", a)
	}
}
