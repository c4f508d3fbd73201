package hook

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestGranted: devices that are refused by default are given to a container if, and only if, exactly these
// were granted to it.
func TestGranted(t *testing.T) {
	nodes := charNodes("/dev/nvidia0", "/dev/nvidia1", "/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0")
	host := lifecycle.Host{Devices: nodes, Verbs: map[string]string{"0000:3b:00.0": "uverbs0"}}
	byNode, byIndex, byUUID := GPU{Devices: GPUByDeviceNode, Nodes: nodes}, GPU{Devices: GPUByCDI}, GPU{Devices: GPUByCDI, ByUUID: true}
	gpu := func(minor int, uuid string) intent.Pod {
		return intent.Pod{GPU: intent.Sourced[intent.GPU]{V: intent.GPU{Minors: []int{minor}, UUIDs: []string{uuid}}, Key: intent.KoordDevices}}
	}
	two := intent.Pod{GPU: intent.Sourced[intent.GPU]{V: intent.GPU{Minors: []int{0, 1}}, Key: intent.KoordDevices}}
	rdma := intent.Pod{RDMA: intent.Sourced[[]string]{V: []string{"0000:3b:00.0"}, Key: intent.KoordDevices}}
	ids := func(resource string, ids ...string) lifecycle.DeviceGrant {
		return lifecycle.DeviceGrant{IDs: map[string][]string{resource: ids}}
	}
	cdi := func(names ...string) lifecycle.DeviceGrant { return lifecycle.DeviceGrant{CDI: names} }
	node := func(d lifecycle.Device) lifecycle.DeviceGrant {
		return lifecycle.DeviceGrant{Nodes: []lifecycle.Device{d}}
	}
	none := lifecycle.DeviceGrant{}
	moved := nodes["/dev/nvidia0"]
	moved.Path = "/dev/nvidia7"
	masked := nodes["/dev/nvidia1"]
	masked.Path = "/dev/nvidia0"
	for _, c := range []struct {
		name             string
		hook             Hook
		ask              intent.Pod
		granted, arrived lifecycle.DeviceGrant
		by               string // "" if refused
	}{
		{"nothing", byIndex, gpu(0, ""), none, none, ""},
		{"CDI name by a claim", byIndex, gpu(0, ""), cdi("nvidia.com/gpu=0"), none, "a CDI device"},
		{"CDI name in the request", byIndex, gpu(0, ""), none, cdi("nvidia.com/gpu=0"), "runtime's request"},
		{"index", byIndex, gpu(0, ""), ids("nvidia.com/gpu", "1", "0"), none, "nvidia.com/gpu"},
		{"UUID", byUUID, gpu(0, "GPU-aa"), ids("nvidia.com/gpu", "GPU-aa"), none, "nvidia.com/gpu"},
		{"MIG", byUUID, gpu(0, "MIG-aa"), ids("nvidia.com/mig-1g.5gb", "MIG-aa"), none, "mig-1g.5gb"},
		{"an index of something else", byIndex, gpu(0, ""), ids("example.com/foo", "0"), none, ""},
		{"a UUID of something else", byUUID, gpu(0, "GPU-aa"), ids("nvidia.com/mig-1g.5gb", "GPU-aa"), none, ""},
		{"another CDI kind", byIndex, gpu(0, ""), cdi("example.com/gpu=0", "nvidia.com/gpu=all", "nvidia.com/gpu=00"), none, ""},
		{"a replica", byUUID, gpu(0, "GPU-aa"), ids("nvidia.com/gpu", "GPU-aa::0", "GPU-aa-1"), none, ""},
		{"other case", byUUID, gpu(0, "GPU-aa"), ids("nvidia.com/gpu", "GPU-AA", "gpu-aa"), none, ""},
		{"letters that look alike", byUUID, gpu(0, "GPU-aa"), ids("nvidia.com/gpu", "GPU-\u0430\u0430", "GPU-aa\u200b", " GPU-aa"), none, ""},
		{"a path", byUUID, gpu(0, "GPU-aa"), ids("nvidia.com/gpu", "../GPU-aa", "/dev/nvidia0", "GPU-aa/"), none, ""},
		{"an empty id", byUUID, gpu(0, "GPU-aa"), ids("nvidia.com/gpu", ""), none, ""},
		{"one of two", byIndex, two, ids("nvidia.com/gpu", "0"), none, ""},
		{"both", byIndex, two, ids("nvidia.com/gpu", "0"), cdi("nvidia.com/gpu=1"), "granted"},
		{"node in the request", byNode, gpu(0, ""), none, node(nodes["/dev/nvidia0"]), "runtime's request"},
		{"under another name", byNode, gpu(0, ""), none, node(moved), "runtime's request"},
		{"another under its name", byNode, gpu(0, ""), none, node(masked), ""},
		{"a path without numbers", byNode, gpu(0, ""), none, node(lifecycle.Device{Path: "/dev/nvidia0"}), ""},
		{"numbers of neither", GPU{Devices: GPUByDeviceNode, Nodes: map[string]lifecycle.Device{"/dev/nvidia0": {Path: "/dev/nvidia0"}}}, gpu(0, ""), none, node(lifecycle.Device{Path: "/dev/nvidia0"}), ""},
		// Only the annotation has the minor number of a UUID.
		{"node by a UUID of one's own", byNode, gpu(1, "GPU-aa"), ids("nvidia.com/gpu", "GPU-aa", "1"), none, ""},
		{"index by a UUID of one's own", byIndex, gpu(1, "GPU-aa"), ids("nvidia.com/gpu", "GPU-aa"), none, ""},
		{"function", RDMA{Host: host}, rdma, ids("mellanox.com/cx5", "0000:3b:00.0"), none, "mellanox.com/cx5"},
		{"another function", RDMA{Host: host}, rdma, ids("mellanox.com/cx5", "0000:3b:00.1", "3b:00.0"), none, ""},
		{"verbs in the request", RDMA{Host: host}, rdma, none, node(nodes["/dev/infiniband/uverbs0"]), "runtime's request"},
		{"only the manager in the request", RDMA{Host: host}, rdma, none, node(nodes["/dev/infiniband/rdma_cm"]), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.ask.OnlyGrantedRule = "default"
			in := &Input{Pod: &lifecycle.Pod{Namespace: "shop"}, Container: "a", Intent: &c.ask, GrantedDevices: c.granted, RequestedDevices: c.arrived}
			var out Output
			c.hook.Propose(in, &out)
			handed := 0
			for _, v := range out.Values {
				if v.Field != lifecycle.CDIDevice && v.Field != lifecycle.DeviceNode {
					continue
				}
				handed++
				if !strings.Contains(v.Why.Text, c.by) || !strings.Contains(v.Why.Text, "(authorization: default)") {
					t.Errorf("%s: %s", v.Key, v.Why.Text)
				}
			}
			if (handed > 0) != (c.by != "") {
				t.Errorf("%d devices handed over: %v", handed, out.Values)
			}
			if no := len(out.Problems) == 1 && out.Problems[0].Refused && out.Problems[0].Rule == "default"; no == (c.by != "") {
				t.Errorf("problems: %v", out.Problems)
			}
		})
	}
}
