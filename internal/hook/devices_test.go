package hook

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

func charNodes(paths ...string) map[string]lifecycle.Device {
	m := map[string]lifecycle.Device{}
	for i, p := range paths {
		m[p] = lifecycle.Device{Path: p, Type: "c", Major: 195, Minor: int64(i)}
	}
	return m
}

// TestGPUDevices: how a container gets its GPUs, and by which names.
func TestGPUDevices(t *testing.T) {
	nodes := charNodes("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm")
	both := intent.GPU{Minors: []int{1, 0}, UUIDs: []string{"GPU-bb", "GPU-aa"}}
	for _, c := range []struct {
		name     string
		hook     GPU
		gpu      intent.GPU
		want     map[string]string
		problems int
	}{
		{"index", GPU{Nodes: nodes}, both, map[string]string{"env NVIDIA_VISIBLE_DEVICES": "1,0"}, 0},
		{"uuid", GPU{ByUUID: true}, both, map[string]string{"env NVIDIA_VISIBLE_DEVICES": "GPU-bb,GPU-aa"}, 0},
		{"uuid, one missing", GPU{ByUUID: true}, intent.GPU{Minors: []int{1, 0}, UUIDs: []string{"GPU-bb", ""}}, map[string]string{}, 1},
		{"uuid, none", GPU{ByUUID: true, Devices: GPUByCDI}, intent.GPU{Minors: []int{1}}, map[string]string{}, 1},
		{"nodes", GPU{Devices: GPUByDeviceNode, Nodes: nodes}, both, map[string]string{
			"env NVIDIA_VISIBLE_DEVICES": "1,0", "device /dev/nvidia1": "/dev/nvidia1 c 195:1", "device /dev/nvidia0": "/dev/nvidia0 c 195:0",
			"device /dev/nvidiactl": "/dev/nvidiactl c 195:2", "device /dev/nvidia-uvm": "/dev/nvidia-uvm c 195:3",
		}, 0},
		{"nodes, one missing", GPU{Devices: GPUByDeviceNode, Nodes: nodes}, intent.GPU{Minors: []int{7}}, map[string]string{
			"env NVIDIA_VISIBLE_DEVICES": "7", "device /dev/nvidiactl": "/dev/nvidiactl c 195:2", "device /dev/nvidia-uvm": "/dev/nvidia-uvm c 195:3",
		}, 1},
		{"cdi", GPU{Devices: GPUByCDI}, both, map[string]string{"cdi nvidia.com/gpu=1": "nvidia.com/gpu=1", "cdi nvidia.com/gpu=0": "nvidia.com/gpu=0"}, 0},
		{"cdi by uuid", GPU{Devices: GPUByCDI, ByUUID: true}, both, map[string]string{
			"cdi nvidia.com/gpu=GPU-bb": "nvidia.com/gpu=GPU-bb", "cdi nvidia.com/gpu=GPU-aa": "nvidia.com/gpu=GPU-aa",
		}, 0},
	} {
		in := &Input{Container: "a", Intent: &intent.Pod{GPU: intent.Sourced[intent.GPU]{V: c.gpu, Key: intent.KoordDevices}}}
		if diff := cmp.Diff(c.want, values(in, c.hook)); diff != "" {
			t.Error(c.name, diff)
		}
		var out Output
		c.hook.Propose(in, &out)
		if len(out.Problems) != c.problems {
			t.Errorf("%s: %v", c.name, out.Problems)
		}
	}
}

// TestRDMA compares with Koordinator 1.7, except for missing devices.
func TestRDMA(t *testing.T) {
	host := lifecycle.Host{
		Devices: charNodes("/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0", "/dev/infiniband/uverbs5"),
		Verbs:   map[string]string{"0000:3b:00.0": "uverbs0", "0000:3b:00.2": "uverbs5", "0000:3b:00.3": "uverbs9"},
	}
	cm := "/dev/infiniband/rdma_cm c 195:0"
	for _, c := range []struct {
		name     string
		host     lifecycle.Host
		ask      []string
		want     map[string]string
		problems int
	}{
		{"a card", host, []string{"0000:3b:00.0"}, map[string]string{"device /dev/infiniband/rdma_cm": cm, "device /dev/infiniband/uverbs0": "/dev/infiniband/uverbs0 c 195:1"}, 0},
		{"a function twice", host, []string{"0000:3b:00.2", "0000:3b:00.2"}, map[string]string{"device /dev/infiniband/rdma_cm": cm, "device /dev/infiniband/uverbs5": "/dev/infiniband/uverbs5 c 195:2"}, 0},
		{"no such function", host, []string{"0000:99:00.0"}, map[string]string{"device /dev/infiniband/rdma_cm": cm}, 1},
		{"no such node", host, []string{"0000:3b:00.3"}, map[string]string{"device /dev/infiniband/rdma_cm": cm}, 1},
		{"nothing there", lifecycle.Host{}, []string{"0000:3b:00.0"}, map[string]string{}, 2},
	} {
		in := &Input{Container: "a", Intent: &intent.Pod{RDMA: intent.Sourced[[]string]{V: c.ask, Key: intent.KoordDevices}}}
		if diff := cmp.Diff(c.want, values(in, RDMA{Host: c.host})); diff != "" {
			t.Error(c.name, diff)
		}
		var out Output
		RDMA{Host: c.host}.Propose(in, &out)
		if len(out.Problems) != c.problems {
			t.Errorf("%s: %v", c.name, out.Problems)
		}
		for _, v := range out.Values {
			if v.Device.FileMode != lifecycle.Some[uint32](0o666) {
				t.Errorf("%s: %s has mode %o", c.name, v.Key, v.Device.FileMode.V)
			}
		}
	}
	if host.Devices["/dev/infiniband/rdma_cm"].FileMode.Set {
		t.Error("the host's own table was changed")
	}
}
