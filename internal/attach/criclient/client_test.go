package criclient

import (
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestLaterSandbox: of a pod's two sandboxes, the one with the kubelet's higher attempt number is the later
// one, although the wall clock was set back between them.
func TestLaterSandbox(t *testing.T) {
	sandbox := func(attempt uint32, created int64) *cri.PodSandbox {
		return &cri.PodSandbox{Metadata: &cri.PodSandboxMetadata{Attempt: attempt}, CreatedAt: created}
	}
	first, second := sandbox(0, 1000), sandbox(1, 400)
	if !isNewer(second, first) || isNewer(first, second) || !isNewer(sandbox(1, 401), second) {
		t.Error("the sandbox made after a step back of the wall clock is taken for the older one")
	}
}
