package hook

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// podWide is a request of a pod for all its containers.
func podWide[T any](v T) intent.Sourced[intent.PerContainer[T]] {
	return intent.Sourced[intent.PerContainer[T]]{V: intent.PerContainer[T]{Pod: intent.Sourced[T]{V: v, Key: "k"}}, Key: "k"}
}

// askProcess makes a pod request everything that the hooks of process attributes serve.
func askProcess(p *intent.Pod) {
	p.Ulimits = podWide([]lifecycle.Rlimit{{Type: "RLIMIT_NOFILE", Hard: 4096, Soft: 1024}, {Type: "RLIMIT_CORE"}})
	p.IOPriority = podWide(lifecycle.IOPriority{Class: "IOPRIO_CLASS_BE", Priority: 2})
	p.Scheduler = podWide(lifecycle.Scheduler{Policy: "SCHED_BATCH", Nice: 5})
	p.MemPolicy = podWide(lifecycle.MemoryPolicy{Mode: "MPOL_BIND", Nodes: "0"})
	p.DeviceNodes = podWide([]lifecycle.Device{{Path: "/dev/x", Type: "c", Major: 10, Minor: 229}, {Path: "/dev/mem", Type: "c", Major: 1, Minor: 1}, {Path: "/dev/b", Type: "b", Major: 10, Minor: 229}})
	p.Mounts = podWide([]intent.HostMount{{Source: "/data/models", Destination: "/models"}, {Source: "/data", Destination: "/data", Writable: true}})
	p.CDIDevices = podWide([]string{"vendor.com/net=nic0", "vendor.com/gpu=1"})
	p.NetDevices = podWide([]intent.NetDevice{{Host: "eth1", Name: "net0"}, {Host: "eth0", Name: "net1"}})
	p.WritableCgroups, p.ClosID, p.Monitoring = podWide(true), podWide("gold"), podWide(true)
	p.Schemata = podWide([]string{"L3:0=f;1=f", "MB:0=50"})
	p.Sysctls = podWide(map[string]string{"net.ipv4.tcp_fin_timeout": "20", "kernel.shm_rmid_forced": "1", "vm.swappiness": "1"})
}

// TestProcessHooks: what each hook sets, and what it refuses because of its options.
func TestProcessHooks(t *testing.T) {
	t.Parallel()
	pod := &intent.Pod{}
	askProcess(pod)
	own := *pod
	own.Ulimits.V.ByContainer = map[string]intent.Sourced[[]lifecycle.Rlimit]{"main": {V: []lifecycle.Rlimit{{Type: "RLIMIT_CPU", Hard: 9, Soft: 1}}, Key: "k/container.main"}, "bad": {}}
	own.Scheduler = podWide(lifecycle.Scheduler{Policy: "SCHED_FIFO", Priority: 10})
	own.IOPriority = podWide(lifecycle.IOPriority{Class: "IOPRIO_CLASS_RT", Priority: 0})
	own.MemPolicy = podWide(lifecycle.MemoryPolicy{Mode: "MPOL_BIND", Nodes: "2-3"})
	relative := own
	relative.MemPolicy = podWide(lifecycle.MemoryPolicy{Mode: "MPOL_BIND", Nodes: "2", Flags: []string{"MPOL_F_RELATIVE_NODES"}})
	deadline := own
	deadline.Scheduler = podWide(lifecycle.Scheduler{Policy: "SCHED_DEADLINE", Runtime: 2048, Deadline: 4096})
	class := &intent.Pod{MemoryRequest: podWide(intent.MemoryRequest{Class: "c"})}
	asks := func(nodes string) *intent.Pod {
		return &intent.Pod{MemoryRequest: podWide(intent.MemoryRequest{MemoryPolicy: lifecycle.MemoryPolicy{Mode: "MPOL_BIND", Nodes: nodes}})}
	}
	machine, err := topology.New([]topology.CPU{{ID: 0}, {ID: 1, Core: 1}, {ID: 2, Core: 2, Node: 1}, {ID: 3, Package: 1, Node: 2}}, map[int]uint64{0: 1, 1: 1, 2: 1})
	if err != nil {
		t.Fatal(err)
	}
	host := &lifecycle.Pod{HostNetwork: true, HostIPC: true}
	usual := SysctlOptions{Allowed: []string{"net.ipv4.*", "kernel.shm_rmid_forced"}}
	for _, c := range []struct {
		name      string
		hook      Hook
		in        Input
		want      map[string]string
		wantWrong string
	}{
		{"limits", Ulimits{}, Input{Intent: pod, Container: "a"}, map[string]string{"rlimit RLIMIT_NOFILE": "1024:4096", "rlimit RLIMIT_CORE": "0:0"}, ""},
		{"limits of the pod itself", Ulimits{}, Input{Intent: pod}, map[string]string{}, ""},
		{"a container's own", Ulimits{}, Input{Intent: &own, Container: "main"}, map[string]string{"rlimit RLIMIT_CPU": "1:9"}, ""},
		{"a container whose own is malformed", Ulimits{}, Input{Intent: &own, Container: "bad"}, map[string]string{}, ""},
		{"the highest", Ulimits{Maximum: map[string]uint64{"RLIMIT_NOFILE": 512}}, Input{Intent: pod, Container: "a"}, map[string]string{"rlimit RLIMIT_NOFILE": "512:512", "rlimit RLIMIT_CORE": "0:0"}, "above 512, the maximum in hooks.ulimits.maximum"},
		{"cgroups", WritableCgroups{}, Input{Intent: pod, Container: "a"}, map[string]string{"cgroup.mount": "rw"}, ""},
		{"cgroups without nsdelegate", WritableCgroups{KernelSupport: lifecycle.Finding{Support: lifecycle.NotSupported, Why: "no nsdelegate"}}, Input{Intent: pod, Container: "a"}, map[string]string{}, "no nsdelegate"},
		{"RDT", IntelRDT{Classes: []string{"g*"}, Schemata: true}, Input{Intent: pod, Container: "a"}, map[string]string{"intel.rdt closid": "gold", "intel.rdt schemata": "L3:0=f;1=f,MB:0=50", "intel.rdt monitoring": "true"}, ""},
		{"RDT of other classes", IntelRDT{Classes: []string{"silver"}, Schemata: true}, Input{Intent: pod, Container: "a"}, map[string]string{"intel.rdt schemata": "L3:0=f;1=f,MB:0=50", "intel.rdt monitoring": "true"}, "hooks.intelRDT.classes does not list this class"},
		{"disks", IOPriorityOptions{}, Input{Intent: pod, Container: "a"}, map[string]string{"io.priority": "IOPRIO_CLASS_BE 2"}, ""},
		{"disks before others", IOPriorityOptions{}, Input{Intent: &own, Container: "a"}, map[string]string{}, "hooks.ioPriority.realtime"},
		{"disks before others, allowed", IOPriorityOptions{Realtime: true}, Input{Intent: &own, Container: "a"}, map[string]string{"io.priority": "IOPRIO_CLASS_RT 0"}, ""},
		{"policy", SchedulerOptions{}, Input{Intent: pod, Container: "a"}, map[string]string{"scheduler": "SCHED_BATCH nice=5"}, ""},
		{"real time", SchedulerOptions{Deadline: true}, Input{Intent: &own, Container: "a"}, map[string]string{}, "hooks.scheduler.realtime"},
		{"real time, allowed", SchedulerOptions{Realtime: true}, Input{Intent: &own, Container: "a"}, map[string]string{"scheduler": "SCHED_FIFO priority=10"}, ""},
		{"deadlines", SchedulerOptions{Realtime: true}, Input{Intent: &deadline, Container: "a"}, map[string]string{}, "hooks.scheduler.deadline"},
		{"memory", MemoryPolicy{Nodes: []int{0, 1}}, Input{Intent: pod, Container: "a"}, map[string]string{"memory.policy": "MPOL_BIND nodes=0"}, ""},
		{"nodes there are none of", MemoryPolicy{Nodes: []int{0, 1}}, Input{Intent: &own, Container: "a"}, map[string]string{}, "may use none"},
		{"nodes of others", MemoryPolicy{Nodes: []int{0, 1}}, Input{Intent: pod, Container: "a", Mems: "1"}, map[string]string{}, "may use none"},
		{"nodes it was not given", MemoryPolicy{}, Input{Intent: pod, Container: "a", Pristine: &lifecycle.Resources{CPU: lifecycle.CPU{Mems: "1"}}}, map[string]string{}, "may use none"},
		{"relative nodes", MemoryPolicy{Nodes: []int{0}}, Input{Intent: &relative, Container: "a"}, map[string]string{"memory.policy": "MPOL_BIND nodes=2 flags=MPOL_F_RELATIVE_NODES"}, ""},
		{"a class of policies", MemoryPolicy{Nodes: []int{0, 1}, Classes: map[string]lifecycle.MemoryPolicy{"c": {Mode: "MPOL_BIND", Nodes: "1"}}}, Input{Intent: class, Container: "a"}, map[string]string{"memory.policy": "MPOL_BIND nodes=1"}, ""},
		{"a class there is none of", MemoryPolicy{}, Input{Intent: class, Container: "a"}, map[string]string{}, "has this name"},
		{"nodes of its CPUs", MemoryPolicy{Nodes: []int{0, 1, 2}}, Input{Intent: asks("cpu-nodes"), Container: "a", CPUs: "2", Machine: machine}, map[string]string{"memory.policy": "MPOL_BIND nodes=1"}, ""},
		{"nodes of its packages", MemoryPolicy{Nodes: []int{0, 1, 2}}, Input{Intent: asks("cpu-packages"), Container: "a", CPUs: "2", Machine: machine}, map[string]string{"memory.policy": "MPOL_BIND nodes=0-1"}, ""},
		{"nodes near its CPUs", MemoryPolicy{Nodes: []int{0, 1, 2}}, Input{Intent: asks("max-dist:10"), Container: "a", CPUs: "0", Machine: machine}, map[string]string{"memory.policy": "MPOL_BIND nodes=0"}, ""},
		{"nodes that it may use", MemoryPolicy{Nodes: []int{0, 1, 2}}, Input{Intent: asks("allowed-mems"), Container: "a", Mems: "1-2", Machine: machine}, map[string]string{"memory.policy": "MPOL_BIND nodes=1-2"}, ""},
		{"all nodes", MemoryPolicy{Nodes: []int{0, 1, 2}}, Input{Intent: asks("all"), Container: "a", Machine: machine}, map[string]string{"memory.policy": "MPOL_BIND nodes=0-2"}, ""},
		{"parameters", usual, Input{Intent: pod, Container: "a"}, map[string]string{"sysctl net.ipv4.tcp_fin_timeout": "20", "sysctl kernel.shm_rmid_forced": "1"}, "hooks.sysctl.allowed does not list this parameter"},
		{"parameters of the host's namespaces", usual, Input{Intent: pod, Container: "a", Pod: host}, map[string]string{}, "uses the host's"},
		{"parameters of the node", SysctlOptions{Allowed: []string{"*"}}, Input{Intent: pod, Container: "a", Pod: host}, map[string]string{}, "the parameter does not belong to a namespace"},
		{"devices", DeviceNodes{Allowed: []lifecycle.Device{{Path: "/dev/fuse", Host: "/dev/fuse", Type: "c", Major: 10, Minor: 229}}}, Input{Intent: pod, Container: "a"}, map[string]string{"device /dev/x": ""}, "with these numbers"},
		{"no devices", DeviceNodes{}, Input{Intent: pod, Container: "a"}, map[string]string{}, "with these numbers"},
		{"mounts", MountsOptions{Allowed: []string{"/data/models", "/data"}}, Input{Intent: pod, Container: "a"}, map[string]string{"mount /models": ""}, "hooks.mounts.writable does not list this path"},
		{"mounts to write", MountsOptions{Writable: []string{"/data", "/data/models"}}, Input{Intent: pod, Container: "a"}, map[string]string{"mount /models": "", "mount /data": ""}, ""},
		{"mounts below an allowed path", MountsOptions{Writable: []string{"/data"}}, Input{Intent: pod, Container: "a"}, map[string]string{"mount /data": ""}, "hooks.mounts.allowed does not list this path"},
		{"CDI devices", CDIDevicesOptions{Allowed: []string{"vendor.com/net=*"}}, Input{Intent: pod, Container: "a"}, map[string]string{"cdi vendor.com/net=nic0": "vendor.com/net=nic0"}, "hooks.cdiDevices.allowed does not list this device"},
		{"no CDI devices", CDIDevicesOptions{}, Input{Intent: pod, Container: "a"}, map[string]string{}, "hooks.cdiDevices.allowed"},
		{"interfaces", NetworkDevicesOptions{Allowed: []string{"eth1"}}, Input{Intent: pod, Container: "a"}, map[string]string{"net.device eth1": "net0"}, "hooks.networkDevices.allowed does not list this interface"},
		{"interfaces of the host's own network", NetworkDevicesOptions{Allowed: []string{"*"}}, Input{Intent: pod, Container: "a", Pod: host}, map[string]string{}, "the pod uses the host's network"},
	} {
		var out Output
		c.hook.Propose(&c.in, &out)
		got := map[string]string{}
		for _, v := range out.Values {
			got[v.Setting()] = v.Text
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
		var said []string
		for _, p := range out.Problems {
			said = append(said, p.Sentence())
		}
		if all := strings.Join(said, "; "); (all == "") != (c.wantWrong == "") || !strings.Contains(all, c.wantWrong) {
			t.Errorf("%s: reports %q, want %q", c.name, all, c.wantWrong)
		}
	}
}
