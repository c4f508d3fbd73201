package nrihost

import (
	"testing"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/protobuf/proto"
)

// TestWithRemovals: entries that are missing in the container after the plugins' answers were removed, and
// entries that were set again were not.
func TestWithRemovals(t *testing.T) {
	before := &api.Container{Env: []string{"GONE=1", "SET=1", "KEPT=1"}, Linux: &api.LinuxContainer{
		Devices: []*api.LinuxDevice{{Path: "/dev/gone"}, {Path: "/dev/kept"}},
	}}
	after := &api.Container{Env: []string{"KEPT=1", "SET=2"}, Linux: &api.LinuxContainer{Devices: []*api.LinuxDevice{{Path: "/dev/kept"}}}}
	set := &api.ContainerAdjustment{}
	set.AddEnv("SET", "2")
	want := &api.ContainerAdjustment{}
	want.RemoveEnv("GONE")
	want.AddEnv("SET", "2")
	want.RemoveDevice("/dev/gone")
	if got := withRemovals(set, before, after); !proto.Equal(got, want) {
		t.Errorf("it is %v, want %v", got, want)
	}
	if got := withRemovals(nil, before, before); got != nil {
		t.Errorf("nothing was removed, and it is %v", got)
	}
	if got := withRemovals(nil, before, after); len(got.GetEnv()) != 1 || len(got.GetLinux().GetDevices()) != 1 {
		t.Errorf("it is %v", got)
	}
}
