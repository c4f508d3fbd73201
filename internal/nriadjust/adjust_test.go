package nriadjust

import (
	"slices"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// TestAdjust: each field of an adjustment is applied to a spec, also to one without the sections for it,
// including what the library's own package loses.
func TestAdjust(t *testing.T) {
	a := &api.ContainerAdjustment{}
	a.AddEnv("A", "new")
	a.RemoveEnv("GONE")
	a.AddAnnotation("k", "v")
	a.RemoveAnnotation("old")
	a.SetArgs([]string{"run"})
	a.AddMount(&api.Mount{Destination: "/m/deep", Source: "/s", Type: "bind"})
	a.AddMount(&api.Mount{Destination: "/m", Source: "/s", Type: "bind"})
	a.AddRlimit("RLIMIT_CORE", 2, 1)
	a.AddDevice(&api.LinuxDevice{Path: "/dev/x", Type: "c", Major: 1, Minor: 3})
	a.SetLinuxMemoryReservation(7)
	a.SetLinuxMemorySwap(9)
	a.SetLinuxPidLimits(5)
	a.SetLinuxSysctl("net.x", "1")
	a.SetLinuxRDTClosID("group")
	a.AddCDIDevice(&api.CDIDevice{Name: "vendor/class=x"})
	a.SetLinuxBlockIOClass("slow")
	a.SetLinuxMemoryKernel(3)
	a.SetLinuxMemoryKernelTCP(4)
	a.Linux.SeccompPolicy = &api.LinuxSeccomp{DefaultAction: "SCMP_ACT_ERRNO", DefaultErrno: api.UInt32(uint32(38))}

	s := &specs.Spec{
		Annotations: map[string]string{"old": "x"},
		Process:     &specs.Process{Env: []string{"A=old", "GONE=1"}, Rlimits: []specs.POSIXRlimit{{Type: "RLIMIT_CORE"}}},
	}
	left := Adjust(s, a)
	if want := []string{"CDI_devices", "linux.resources.blockio_class", "linux.resources.memory.kernel", "linux.resources.memory.kernel_tcp"}; !slices.Equal(left, want) {
		t.Errorf("left out %v, want %v", left, want)
	}
	for what, pair := range map[string][2]any{
		"env":         {s.Process.Env, []string{"A=new"}},
		"args":        {s.Process.Args, []string{"run"}},
		"annotations": {s.Annotations, map[string]string{"k": "v"}},
		"rlimits":     {s.Process.Rlimits, []specs.POSIXRlimit{{Type: "RLIMIT_CORE", Hard: 2, Soft: 1}}},
		"mounts":      {[]string{s.Mounts[0].Destination, s.Mounts[1].Destination}, []string{"/m", "/m/deep"}},
		"device":      {s.Linux.Devices[0].Path, "/dev/x"},
		"memory":      {[]int64{*s.Linux.Resources.Memory.Reservation, *s.Linux.Resources.Memory.Swap}, []int64{7, 9}},
		"sysctl":      {s.Linux.Sysctl, map[string]string{"net.x": "1"}},
		"rdt":         {s.Linux.IntelRdt.ClosID, "group"},
		"errno":       {*s.Linux.Seccomp.DefaultErrnoRet, uint(38)},
	} {
		if d := cmp.Diff(pair[1], pair[0]); d != "" {
			t.Errorf("%s: %s", what, d)
		}
	}
	if s.Linux.Resources.Pids == nil {
		t.Error("no limit of pids")
	}
}

// TestNothing: a missing adjustment, and an empty one as the library sends it, change nothing.
func TestNothing(t *testing.T) {
	for _, a := range []*api.ContainerAdjustment{nil, {Linux: &api.LinuxContainerAdjustment{Rdt: &api.LinuxRdt{}, Resources: &api.LinuxResources{}}}} {
		s := &specs.Spec{Process: &specs.Process{}, Linux: &specs.Linux{Resources: &specs.LinuxResources{}}}
		want := &specs.Spec{Process: &specs.Process{}, Linux: &specs.Linux{Resources: &specs.LinuxResources{}}}
		if left := Adjust(s, a); left != nil {
			t.Errorf("left out %v", left)
		}
		if d := cmp.Diff(want, s); d != "" {
			t.Error(d)
		}
	}
}
