package nri

import (
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// newest is the newest known runtime.
var newest = newPeer("containerd", "v2.4.2", "v0.12.3")

// everything has one value for every field.
func everything() []lifecycle.Value {
	return []lifecycle.Value{
		{Field: lifecycle.CPUShares, Int: 512},
		{Field: lifecycle.CPUQuota, Int: -1},
		{Field: lifecycle.CPUPeriod, Int: 50000},
		{Field: lifecycle.CPUSetCPUs, Text: "2-3"},
		{Field: lifecycle.CPUSetMems, Text: "1"},
		{Field: lifecycle.MemoryLimit, Int: 1 << 30},
		{Field: lifecycle.Unified, Key: "memory.high", Text: "900000000"},
		{Field: lifecycle.Env, Key: "NEW", Text: "a=b"},
		{Field: lifecycle.MountPoint, Mount: &lifecycle.Mount{Destination: "/d", Type: "bind", Source: "/s", Options: []string{"ro", "rbind"}}},
		{Field: lifecycle.DeviceNode, Device: &lifecycle.Device{Path: "/dev/x", Type: "c", Major: 1, Minor: 9, FileMode: lifecycle.Some[uint32](0o600), UID: lifecycle.Some[uint32](0)}},
		{Field: lifecycle.Annotation, Key: "k", Text: "v"},
		{Field: lifecycle.OOMScoreAdj, Int: -500},
		{Field: lifecycle.CDIDevice, Key: "vendor.com/class=0", Text: "vendor.com/class=0"},
		{Field: lifecycle.BlockIOClass, Text: "slow"},
		{Field: lifecycle.RDTClass, Text: "gold"},
		{Field: lifecycle.Hugepages, Key: "2MB", Int: 64 << 20},
		{Field: lifecycle.ProcessLimit, Key: "RLIMIT_NOFILE", Text: "1024:4096"},
		{Field: lifecycle.ProcessIO, Text: "IOPRIO_CLASS_BE 4"},
		{Field: lifecycle.ProcessSched, Text: "SCHED_BATCH nice=5 flags=SCHED_FLAG_RESET_ON_FORK"},
		{Field: lifecycle.MemPolicy, Text: "MPOL_BIND nodes=0-1 flags=MPOL_F_STATIC_NODES"},
		{Field: lifecycle.SysctlEntry, Key: "net.core.somaxconn", Text: "1024"},
		{Field: lifecycle.NetDevice, Key: "eth1", Text: "fast"},
	}
}

func wantResources() *api.LinuxResources {
	return &api.LinuxResources{
		Cpu: &api.LinuxCPU{
			Shares: api.UInt64(512), Quota: api.Int64(-1), Period: api.UInt64(50000), Cpus: "2-3", Mems: "1",
		},
		Memory:  &api.LinuxMemory{Limit: api.Int64(1 << 30)},
		Unified: map[string]string{"memory.high": "900000000"},
	}
}

func wantHugepages() *api.LinuxResources {
	r := wantResources()
	r.BlockioClass = api.String("slow")
	r.RdtClass = api.String("gold")
	r.HugepageLimits = []*api.HugepageLimit{{PageSize: "2MB", Limit: 64 << 20}}
	return r
}

func wantAdjustment() *api.ContainerAdjustment {
	return &api.ContainerAdjustment{
		Annotations: map[string]string{"k": "v"},
		Env:         []*api.KeyValue{{Key: "NEW", Value: "a=b"}},
		CDIDevices:  []*api.CDIDevice{{Name: "vendor.com/class=0"}},
		Mounts:      []*api.Mount{{Destination: "/d", Type: "bind", Source: "/s", Options: []string{"ro", "rbind"}}},
		Linux: &api.LinuxContainerAdjustment{
			Devices: []*api.LinuxDevice{{
				Path: "/dev/x", Type: "c", Major: 1, Minor: 9,
				FileMode: &api.OptionalFileMode{Value: 0o600}, Uid: &api.OptionalUInt32{},
			}},
			Resources:   wantHugepages(),
			OomScoreAdj: api.Int(-500),
			IoPriority:  &api.LinuxIOPriority{Class: api.IOPrioClass_IOPRIO_CLASS_BE, Priority: 4},
			Scheduler: &api.LinuxScheduler{
				Policy: api.LinuxSchedulerPolicy_SCHED_BATCH, Nice: 5,
				Flags: []api.LinuxSchedulerFlag{api.LinuxSchedulerFlag_SCHED_FLAG_RESET_ON_FORK},
			},
			MemoryPolicy: &api.LinuxMemoryPolicy{Mode: api.MpolMode_MPOL_BIND, Nodes: "0-1", Flags: []api.MpolFlag{api.MpolFlag_MPOL_F_STATIC_NODES}},
			Sysctl:       map[string]string{"net.core.somaxconn": "1024"},
			NetDevices:   map[string]*api.LinuxNetDevice{"eth1": {Name: "fast"}},
		},
		Rlimits: []*api.POSIXRlimit{{Type: "RLIMIT_NOFILE", Hard: 4096, Soft: 1024}},
	}
}

func TestAdjustmentOfEverything(t *testing.T) {
	got, left := newest.toAdjustment(everything(), &api.Container{Env: []string{"NEWER=1", "OTHER"}})
	if d := cmp.Diff(wantAdjustment(), got, protocmp.Transform()); d != "" || left != nil {
		t.Error(d, left)
	}
}

func TestUpdateOfEverything(t *testing.T) {
	got, left := newest.toUpdate("c1", runtimes.AgentUpdate, everything())
	want := &api.ContainerUpdate{ContainerId: "c1", Linux: &api.LinuxContainerUpdate{Resources: wantResources()}}
	if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(everything()[7:], left); d != "" {
		t.Error(d)
	}
}

// TestCarriesIsTrue: answers set exactly the fields that Carries declares.
func TestCarriesIsTrue(t *testing.T) {
	a := New(Options{})
	a.lastRuntime.Store(newLastRuntime(newPeer("containerd", "v2.4.2", "v0.12.3"), 0, 0))
	for _, v := range everything() {
		adj, _ := newest.toAdjustment([]lifecycle.Value{v}, nil)
		up, _ := newest.toUpdate("c", runtimes.AgentUpdate, []lifecycle.Value{v})
		if a.Capabilities().Create.Has(v.Field) != (adj != nil) {
			t.Errorf("create, %s: declared %v", v.Field, adj == nil)
		}
		if a.Capabilities().Update.Has(v.Field) != (up != nil) {
			t.Errorf("update, %s: declared %v", v.Field, up == nil)
		}
		for _, k := range []lifecycle.Kind{
			lifecycle.Synchronize, lifecycle.RunPodSandbox, lifecycle.UpdatePodSandbox, lifecycle.StopPodSandbox,
			lifecycle.RemovePodSandbox, lifecycle.StartContainer, lifecycle.StopContainer, lifecycle.RemoveContainer, lifecycle.Configure,
		} {
			if a.peer().carries(k, v.Field) {
				t.Errorf("%s is declared at %s", v.Field, k)
			}
		}
	}
}

// TestOverriding: entries that the container has already are marked for removal, and only those.
func TestOverriding(t *testing.T) {
	had := &api.Container{
		Env:         []string{"A=1", "B", "NEW=old"},
		Mounts:      []*api.Mount{{Destination: "/d"}},
		Annotations: map[string]string{"k": "old"},
		Linux:       &api.LinuxContainer{Devices: []*api.LinuxDevice{{Path: "/dev/x"}}},
	}
	got, _ := newest.toAdjustment(everything(), had)
	want := wantAdjustment()
	want.Env = append([]*api.KeyValue{{Key: "-NEW"}}, want.Env...)
	want.Mounts = append([]*api.Mount{{Destination: "-/d"}}, want.Mounts...)
	want.Linux.Devices = append([]*api.LinuxDevice{{Path: "-/dev/x"}}, want.Linux.Devices...)
	if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
		t.Error(d)
	}
}

// TestLeftOver: values that NRI cannot carry are returned, and the answer does not have them.
func TestLeftOver(t *testing.T) {
	for _, v := range []lifecycle.Value{
		{Field: lifecycle.CPUShares, Scope: lifecycle.OfPod, Int: 2},
		{Field: lifecycle.CPUShares}, {Field: lifecycle.CPUShares, Int: -1},
		{Field: lifecycle.CPUQuota}, {Field: lifecycle.CPUPeriod}, {Field: lifecycle.CPUPeriod, Int: -1},
		{Field: lifecycle.CPUSetCPUs}, {Field: lifecycle.CPUSetMems}, {Field: lifecycle.MemoryLimit},
		{Field: lifecycle.Unified}, {Field: lifecycle.Env}, {Field: lifecycle.Env, Key: "-X"}, {Field: lifecycle.Env, Key: "A=B"},
		{Field: lifecycle.MountPoint}, {Field: lifecycle.MountPoint, Mount: &lifecycle.Mount{Destination: "-/d"}},
		{Field: lifecycle.DeviceNode}, {Field: lifecycle.DeviceNode, Device: &lifecycle.Device{Path: "-/d"}},
		{Field: lifecycle.Annotation}, {Field: lifecycle.Annotation, Key: "-k"}, {Field: lifecycle.CDIDevice}, {Field: lifecycle.OOMScoreAdj, Int: 1001}, {Field: lifecycle.Field(99)},
		{Field: lifecycle.ProcessLimit, Text: "1:2"}, {Field: lifecycle.ProcessLimit, Key: "RLIMIT_CPU", Text: "2:1"},
		{Field: lifecycle.ProcessIO, Text: "FAST 1"}, {Field: lifecycle.ProcessSched, Text: "SCHED_FAST"}, {Field: lifecycle.ProcessSched, Text: "SCHED_FIFO flags=A"},
		{Field: lifecycle.MemPolicy, Text: "MPOL_ANY"}, {Field: lifecycle.MemPolicy, Text: "MPOL_BIND flags=A"},
		{Field: lifecycle.SysctlEntry, Key: "-net.a", Text: "1"}, {Field: lifecycle.SysctlEntry, Key: "vm.swappiness", Text: "1"}, {Field: lifecycle.NetDevice, Key: "eth1"},
	} {
		if a, left := newest.toAdjustment([]lifecycle.Value{v}, nil); a != nil || len(left) != 1 {
			t.Errorf("%+v: adjustment %v, left %v", v, a, left)
		}
		if u, left := newest.toUpdate("c", runtimes.AgentUpdate, []lifecycle.Value{v}); u != nil || len(left) != 1 {
			t.Errorf("%+v: update %v, left %v", v, u, left)
		}
	}
	if a, left := newest.toAdjustment(nil, &api.Container{}); a != nil || left != nil {
		t.Errorf("nothing decided, yet %v", a)
	}
}

// TestHostNamespaces: changes of a host namespace are not sent, because OCI runtimes fail a container for
// them.
func TestHostNamespaces(t *testing.T) {
	private := &api.Container{Linux: &api.LinuxContainer{Namespaces: []*api.LinuxNamespace{{Type: "network"}, {Type: "ipc"}}}}
	shared := &api.Container{Linux: &api.LinuxContainer{Namespaces: []*api.LinuxNamespace{{Type: "pid"}}}}
	for _, v := range []lifecycle.Value{
		{Field: lifecycle.SysctlEntry, Key: "net.core.somaxconn", Text: "1024"}, {Field: lifecycle.SysctlEntry, Key: "kernel.shm_rmid_forced", Text: "1"},
		{Field: lifecycle.NetDevice, Key: "eth1", Text: "fast"},
	} {
		if a, left := newest.toAdjustment([]lifecycle.Value{v}, private); a == nil || left != nil {
			t.Errorf("%s %s: not sent for namespaces of its own", v.Field, v.Key)
		}
		if a, left := newest.toAdjustment([]lifecycle.Value{v}, shared); a != nil || len(left) != 1 {
			t.Errorf("%s %s: sent for a namespace of the host", v.Field, v.Key)
		}
	}
}

func TestSubscription(t *testing.T) {
	all := []lifecycle.Kind{
		lifecycle.Synchronize, lifecycle.RunPodSandbox, lifecycle.UpdatePodSandbox, lifecycle.StopPodSandbox, lifecycle.RemovePodSandbox,
		lifecycle.CreateContainer, lifecycle.StartContainer, lifecycle.UpdateContainer, lifecycle.StopContainer, lifecycle.RemoveContainer, lifecycle.Configure,
	}
	for _, tc := range []struct {
		wants []lifecycle.Kind
		nri   string
		want  api.EventMask
	}{
		{all, "v0.12.5", 0xeaf},
		{all, "0.10.0", 0xeaf},
		{all, "v0.9.1-0.20250219030224-e597e7849f24", 0x6af},
		{all, "0.6.1", 0x6af},
		{all, "", 0x6af},
		{[]lifecycle.Kind{lifecycle.CreateContainer}, "0.12.0", 0x8},
		{[]lifecycle.Kind{lifecycle.UpdatePodSandbox}, "0.6.1", 0x4},
		{nil, "0.12.0", 0x4},
	} {
		if got := subscription(tc.wants, peer{nri: runtimes.ParseVersion(tc.nri)}); got != tc.want {
			t.Errorf("%v, NRI %q: %#x, want %#x", tc.wants, tc.nri, got, tc.want)
		}
	}
}

func TestRuntimeVersion(t *testing.T) {
	for _, tc := range []struct{ stated, runtime, release, want string }{
		{"v0.12.3", "containerd", "v2.4.2", "v0.12.3"},
		{"unknown", "containerd", "v2.1.3", "v0.8.0"},
		{"", "containerd", "1.7.25", "v0.6.1"},
		{"(devel)", "cri-o", "1.34.2", "v0.10.0"},
		{"", "containerd", "2.0.5+unknown", "v0.8.0"},
		{"", "iSulad", "2.1.6", ""},
		{"0.0.0-unknown", "containerd", "devel", ""},
	} {
		if got := nriRelease(tc.stated, tc.runtime, tc.release); got != tc.want {
			t.Errorf("%v: got %q", tc, got)
		}
	}
}
