package podspec

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestDevicesOf: devices have their NUMA nodes, or none if the plugin does not report them.
func TestDevicesOf(t *testing.T) {
	at := func(ids ...int64) *podresources.TopologyInfo {
		var out podresources.TopologyInfo
		for _, id := range ids {
			out.Nodes = append(out.Nodes, &podresources.NUMANode{ID: id})
		}
		return &out
	}
	got, err := parseAllocatable(&podresources.AllocatableResourcesResponse{Devices: []*podresources.ContainerDevices{
		{ResourceName: "v/gpu", DeviceIds: []string{"a", "b"}, Topology: at(1)},
		{ResourceName: "v/nic", DeviceIds: []string{"n"}, Topology: at(0, 1)},
		{ResourceName: "v/fuse", DeviceIds: []string{"f"}, Topology: at(-1)},
		{ResourceName: "v/kvm", DeviceIds: []string{"k"}},
	}})
	want := []lifecycle.KubeletDevice{{Resource: "v/gpu", ID: "a", Nodes: []int{1}}, {Resource: "v/gpu", ID: "b", Nodes: []int{1}}, {Resource: "v/nic", ID: "n", Nodes: []int{0, 1}}, {Resource: "v/fuse", ID: "f"}, {Resource: "v/kvm", ID: "k"}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
	for _, bad := range []*podresources.ContainerDevices{
		{DeviceIds: []string{"a"}}, {ResourceName: "v/gpu", DeviceIds: []string{""}}, {ResourceName: "v/gpu", DeviceIds: make([]string, maxDevices+1)},
	} {
		if got, err := parseAllocatable(&podresources.AllocatableResourcesResponse{Devices: []*podresources.ContainerDevices{bad}}); err == nil {
			t.Errorf("taken: %d devices", len(got))
		}
	}
}
