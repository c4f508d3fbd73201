package criclient

import (
	"reflect"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/clock"
)

// decoded converts a configuration with the CRI's own messages, for comparison with ContainerOfConfig.
func decoded(p *cri.ContainerConfig, pod string) *lifecycle.Container {
	l := &lifecycle.Container{
		PodID: pod, State: lifecycle.StateCreated, Name: p.GetMetadata().GetName(),
		Args: append(slices.Clone(p.Command), p.Args...), Labels: p.Labels, Annotations: p.Annotations,
	}
	if i := p.Image; i.GetUserSpecifiedImage() != "" || i.GetImage() != "" {
		l.Image = &lifecycle.Image{Name: i.UserSpecifiedImage, Digest: i.Image}
	}
	for _, e := range p.Envs {
		l.Env = append(l.Env, e.Key+"="+string(e.Value))
	}
	for _, m := range p.Mounts {
		access := map[bool]string{false: "rw", true: "ro"}[m.Readonly]
		l.Mounts = append(l.Mounts, lifecycle.Mount{Destination: m.ContainerPath, Source: m.HostPath, Type: "bind", Options: []string{"rbind", access}})
	}
	for _, d := range p.Devices {
		l.Devices = append(l.Devices, lifecycle.Device{Path: d.ContainerPath})
	}
	for _, d := range p.CDIDevices {
		l.CDIDevices = append(l.CDIDevices, d.Name)
	}
	if r := p.GetLinux().GetResources(); r != nil {
		l.Resources, l.OOMScoreAdj = *Resources(r), lifecycle.Some(r.OomScoreAdj)
	}
	return l
}

// FuzzReading compares this package's decoder of configurations with the CRI's own messages. The decoder accepts no
// text that these refuse.
func FuzzReading(f *testing.F) {
	text := func(n protowire.Number, b ...byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), b)
	}
	whole, err := proto.Marshal(&cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "a", Attempt: 3}, Image: &cri.ImageSpec{Image: "sha256:1", UserSpecifiedImage: "i"},
		Command: []string{"c", ""}, Args: []string{"d"}, WorkingDir: "/w", LogPath: "l", Tty: true,
		Envs:   []*cri.KeyValue{{Key: "K", Value: []byte("v")}, {Key: "", Value: []byte{0xff}}, {}},
		Mounts: []*cri.Mount{{ContainerPath: "/m", HostPath: "/h", Readonly: true}, {}},
		Labels: map[string]string{"l": "1", "": ""}, Annotations: map[string]string{"a": "2", "b": ""},
		Devices: []*cri.Device{{ContainerPath: "/dev/a", HostPath: "/dev/b"}}, CDIDevices: []*cri.CDIDevice{{Name: "v/c=n"}, {}},
		Linux: &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{}, Resources: &cri.LinuxContainerResources{
			CpuPeriod: 1, CpuQuota: -1, CpuShares: 2, MemoryLimitInBytes: 3, MemorySwapLimitInBytes: 4, OomScoreAdj: -5, CpusetCpus: "0-1", CpusetMems: "0",
			HugepageLimits: []*cri.HugepageLimit{{PageSize: "2MB", Limit: 1 << 60}, {}}, Unified: map[string]string{"k": "v", "": "w"},
		}},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(slices.Concat(whole, whole))
	f.Add(append(whole, text(15, text(1, protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), 0)...)...)...)) // this means no quota
	f.Add(text(9, text(1, 0xff)...))
	f.Add(text(10))
	f.Add(text(2))
	f.Add(protowire.AppendVarint(protowire.AppendTag(nil, 9, protowire.VarintType), 1)) // the map is missing
	f.Fuzz(func(t *testing.T, config []byte) {
		defer clock.Watch(t, len(config))()
		p := &cri.ContainerConfig{}
		if proto.Unmarshal(config, p) != nil {
			ContainerOfConfig(config, "p") // must not panic
			return
		}
		got, ok := ContainerOfConfig(slices.Concat([]byte("before"), config)[len("before"):], "p")
		if !ok {
			t.Fatalf("%x is not read", config)
		}
		want := decoded(p, "p")
		for _, l := range []*lifecycle.Container{got, want} { // empty and nil count as equal
			for _, m := range []*map[string]string{&l.Labels, &l.Annotations, &l.Resources.Unified} {
				if len(*m) == 0 {
					*m = nil
				}
			}
			for _, list := range []*[]string{&l.Args, &l.Env} {
				if len(*list) == 0 {
					*list = nil
				}
			}
			if len(l.Mounts) == 0 {
				l.Mounts = nil
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%x:\n%+v\nwant\n%+v", config, got, want)
		}
	})
}
