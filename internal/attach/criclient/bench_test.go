package criclient

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// BenchmarkList decodes the list of a node's containers, which the proxy requests every 0.8 s: with this
// package's decoder and with protobuf's.
func BenchmarkList(b *testing.B) {
	all := &cri.ListContainersResponse{}
	for i := range 250 {
		all.Containers = append(all.Containers, &cri.Container{
			Id: fmt.Sprintf("%064x", i), PodSandboxId: fmt.Sprintf("%064x", i/2), Metadata: &cri.ContainerMetadata{Name: "app"},
			Image: &cri.ImageSpec{Image: "sha256:" + fmt.Sprintf("%064x", i)}, ImageRef: "sha256:" + fmt.Sprintf("%064x", i),
			State: cri.ContainerState_CONTAINER_RUNNING, CreatedAt: 1 << 60,
			Labels: map[string]string{
				"io.kubernetes.container.name": "app", "io.kubernetes.pod.name": fmt.Sprint("web-", i), "io.kubernetes.pod.namespace": "shop",
				"io.kubernetes.pod.uid": fmt.Sprintf("%036x", i),
			},
			Annotations: map[string]string{
				"io.kubernetes.container.hash": "1f2e3d", "io.kubernetes.container.restartCount": "0", "io.kubernetes.pod.terminationGracePeriod": "30",
				"io.kubernetes.container.terminationMessagePath": "/dev/termination-log", "io.kubernetes.container.terminationMessagePolicy": "File",
			},
		})
	}
	msg := encoded(b, all)
	b.Run("by hand", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if items, err := decodeItems(msg, containerFields); err != nil || len(items) != len(all.Containers) {
				b.Fatal(err)
			}
		}
	})
	b.Run("decoded", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var l cri.ListContainersResponse
			if err := proto.Unmarshal(msg, &l); err != nil {
				b.Fatal(err)
			}
			items := make([]ListItem, 0, len(l.Containers))
			for _, c := range l.Containers {
				items = append(items, ListItem{c.Id, c.PodSandboxId, int32(c.State)})
			}
			if len(items) == 0 {
				b.Fatal("nothing is listed")
			}
		}
	})
}

// BenchmarkConfig decodes a container's configuration with this package's decoder and with protobuf's.
func BenchmarkConfig(b *testing.B) {
	config := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "app"}, Image: &cri.ImageSpec{Image: "sha256:1", UserSpecifiedImage: "i"}, Command: []string{"sleep"}, Args: []string{"1"},
		Labels: map[string]string{"io.kubernetes.container.name": "app", "io.kubernetes.pod.name": "web-0", "io.kubernetes.pod.namespace": "shop"},
		Annotations: map[string]string{
			"io.kubernetes.container.hash": "1f2e3d", "io.kubernetes.container.restartCount": "0", "io.kubernetes.pod.terminationGracePeriod": "30",
		},
		Linux: &cri.LinuxContainerConfig{Resources: &cri.LinuxContainerResources{CpuShares: 100, CpuPeriod: 100_000, CpuQuota: 20_000, OomScoreAdj: 5}},
	}
	for i := range 20 {
		config.Envs = append(config.Envs, &cri.KeyValue{Key: fmt.Sprint("SERVICE_HOST_", i), Value: []byte("10.0.0.1")})
	}
	for i := range 5 {
		config.Mounts = append(config.Mounts, &cri.Mount{ContainerPath: fmt.Sprint("/m", i), HostPath: "/var/lib/kubelet/pods/x/volumes/v", Readonly: true})
	}
	msg := encoded(b, config)
	b.Run("by hand", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := ContainerOfConfig(msg, "p"); !ok {
				b.Fatal("not read")
			}
		}
	})
	b.Run("decoded", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var c cri.ContainerConfig
			if err := proto.Unmarshal(msg, &c); err != nil {
				b.Fatal(err)
			}
			decoded(&c, "p")
		}
	})
}

func encoded(b *testing.B, m proto.Message) []byte {
	b.Helper()
	msg, err := proto.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	return msg
}
