package bypass

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestStored: for each field that the CRI can change, an update requests the value unchanged, and a value
// that another client of the runtime requested is noticed once.
func TestStored(t *testing.T) {
	for _, c := range []struct {
		value lifecycle.Value
		ours  *cri.LinuxContainerResources
	}{
		{lifecycle.Value{Field: lifecycle.CPUShares, Int: 7}, &cri.LinuxContainerResources{CpuShares: 7}},
		{lifecycle.Value{Field: lifecycle.CPUQuota, Int: 7}, &cri.LinuxContainerResources{CpuQuota: 7}},
		{lifecycle.Value{Field: lifecycle.CPUQuota, Int: 0}, &cri.LinuxContainerResources{CpuQuota: -1}},
		{lifecycle.Value{Field: lifecycle.CPUPeriod, Int: 7}, &cri.LinuxContainerResources{CpuPeriod: 7}},
		{lifecycle.Value{Field: lifecycle.MemoryLimit, Int: -5}, &cri.LinuxContainerResources{MemoryLimitInBytes: -1}},
		{lifecycle.Value{Field: lifecycle.CPUSetCPUs, Text: "0-1"}, &cri.LinuxContainerResources{CpusetCpus: "0-1"}},
		{lifecycle.Value{Field: lifecycle.CPUSetMems, Text: "0"}, &cri.LinuxContainerResources{CpusetMems: "0"}},
	} {
		values := []lifecycle.Value{c.value}
		if d := cmp.Diff(c.ours, updateRequest(values), protocmp.Transform()); d != "" {
			t.Errorf("%s: asked for\n%s", c.value.Field, d)
		}
		var now, seen, ours storedCopy
		if left := now.put(values); len(left) > 0 {
			t.Errorf("%s: no field for it", c.value.Field)
		}
		theirs := foreignChanges(now, seen, ours)
		if theirs == nil || newStoredCopy(theirs)[copyFieldIndex(c.value.Field)] != now[copyFieldIndex(c.value.Field)] {
			t.Errorf("%s: another client requested %+v", c.value.Field, theirs)
		}
		if foreignChanges(now, now, ours) != nil || foreignChanges(now, seen, now) != nil {
			t.Errorf("%s: what was seen, or is ours, was asked for", c.value.Field)
		}
		ours = now
		if ours.clearChanged(theirs); ours != (storedCopy{}) {
			t.Errorf("%s: still ours: %+v", c.value.Field, ours)
		}
	}
	var s storedCopy
	if left := s.put([]lifecycle.Value{{Field: lifecycle.OOMScoreAdj, Int: 1}}); len(left) != 1 || s != (storedCopy{}) {
		t.Errorf("put %+v, left %+v", s, left)
	}
}

// TestStateUnknown: if the runtime does not know whether a container runs, a container without a cgroup
// counts as not running. One with a cgroup counts as running, so that its CPUs are not given away.
func TestStateUnknown(t *testing.T) {
	for dir, want := range map[string]lifecycle.State{"": lifecycle.StateUnknown, "kubepods/pod1/a": lifecycle.StateRunning} {
		c := newCtr(criclient.Container{
			Container: &lifecycle.Container{ID: "a", State: lifecycle.StateRunning, Undescribed: "the runtime reports the state of the container as CONTAINER_UNKNOWN"}, StateUnknown: true,
		}, dir)
		if c.lastReported.State != want || c.running != (want == lifecycle.StateRunning) || c.resourcesUnknown != c.running {
			t.Errorf("in %q: %v, runs %t, to be asked again %t; want %v", dir, c.lastReported.State, c.running, c.resourcesUnknown, want)
		}
	}
}
