package nri

import (
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/protobuf/proto"
)

// bigContainer is about 10 kB on the wire, as containers in clusters are.
func bigContainer() *api.Container {
	c := &api.Container{
		Id: strings.Repeat("c", 64), PodSandboxId: strings.Repeat("p", 64), Name: "app",
		Labels: map[string]string{}, Annotations: map[string]string{},
		Linux: &api.LinuxContainer{
			Resources: wantResources(), CgroupsPath: "kubepods-burstable.slice:cri-containerd:x",
			SeccompPolicy: &api.LinuxSeccomp{DefaultAction: "SCMP_ACT_ERRNO", Syscalls: []*api.LinuxSyscall{{Action: "SCMP_ACT_ALLOW"}}},
		},
		User: &api.User{Uid: 1}, Image: &api.Image{Name: "registry.example/app:1"},
	}
	for i := range 60 {
		c.Env = append(c.Env, fmt.Sprintf("SERVICE_%d_PORT=%s", i, strings.Repeat("v", 40)))
	}
	for i := range 40 {
		c.Mounts = append(c.Mounts, &api.Mount{
			Destination: fmt.Sprintf("/mnt/%d", i), Source: "/srv/" + strings.Repeat("s", 60), Type: "bind", Options: []string{"rbind", "ro", "rprivate"},
		})
	}
	for i := range 20 {
		c.Annotations[fmt.Sprintf("example.org/key-%d", i)] = strings.Repeat("a", 30)
		c.Linux.Devices = append(c.Linux.Devices, &api.LinuxDevice{Path: fmt.Sprintf("/dev/d%d", i), Type: "c", Major: 1, Minor: int64(i)})
		c.Linux.Resources.Devices = append(c.Linux.Resources.Devices, &api.LinuxDeviceCgroup{Allow: true, Type: "c", Access: "rwm"})
	}
	for _, ns := range []string{"pid", "ipc", "uts", "mount", "network"} {
		c.Linux.Namespaces = append(c.Linux.Namespaces, &api.LinuxNamespace{Type: ns, Path: "/proc/1/ns/" + ns})
	}
	return c
}

func BenchmarkContainerIn(b *testing.B) {
	c := bigContainer()
	b.ReportAllocs()
	for b.Loop() {
		convertContainer(c)
	}
	b.ReportMetric(float64(proto.Size(c)), "wire-B")
}

func BenchmarkAdjustment(b *testing.B) {
	c, values := bigContainer(), everything()
	b.ReportAllocs()
	for b.Loop() {
		newest.toAdjustment(values, c)
	}
}
