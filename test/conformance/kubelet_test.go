package conformance

import (
	"testing"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// A kubelet repeats a resize that another writer has undone.
func TestKubeletRepeatsResize(t *testing.T) {
	t.Parallel()
	s := newSharedRuntime(t)
	k := s.kubelet(nil)
	container := s.pod(k, "LS", nil).In("a")
	resize := &scenario.Update{Container: container, Resources: scenario.Resources{Shares: new(uint64(2048)), Quota: new(int64(200_000))}}
	quota := func() int64 {
		t.Helper()
		r, err := k.calls.ContainerStatus(t.Context(), &v1.ContainerStatusRequest{ContainerId: k.containerID(container)})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetStatus().GetResources().GetLinux().GetCpuQuota()
	}
	if err := k.update(t.Context(), resize); err != nil {
		t.Fatal(err)
	}
	if err := s.runtime.UpdateContainer(t.Context(), container, scenario.Resources{Quota: new(int64(-1))}); err != nil {
		t.Fatal(err)
	}
	if err := k.repeat(t.Context(), resize); err != nil || quota() != 200_000 {
		t.Errorf("after the repeated resize the quota is %d (%v), want 200000", quota(), err)
	}
}
