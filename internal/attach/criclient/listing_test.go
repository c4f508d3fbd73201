package criclient

import (
	"testing"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/clock"
)

// FuzzListing compares this package's decoder of lists with protobuf's own decoder.
func FuzzListing(f *testing.F) {
	for _, m := range []proto.Message{
		&cri.ListContainersResponse{},
		&cri.ListContainersResponse{Containers: []*cri.Container{
			{Id: "a", PodSandboxId: "p", State: cri.ContainerState_CONTAINER_EXITED, CreatedAt: 1 << 60, Labels: map[string]string{"k": "v"}, Metadata: &cri.ContainerMetadata{Name: "n"}},
			{}, {Id: "b", CreatedAt: -1, Annotations: map[string]string{"": ""}},
		}},
		&cri.ListPodSandboxResponse{Items: []*cri.PodSandbox{{Id: "p", State: cri.PodSandboxState_SANDBOX_NOTREADY, CreatedAt: 7, RuntimeHandler: "kata"}}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0x0a, 0x05, 0x0a})
	f.Fuzz(func(t *testing.T, b []byte) {
		defer clock.Watch(t, len(b))()
		var ctrs cri.ListContainersResponse
		got, err := decodeItems(b, containerFields)
		if proto.Unmarshal(b, &ctrs) == nil {
			var want []ListItem
			for _, c := range ctrs.Containers {
				want = append(want, ListItem{c.Id, c.PodSandboxId, int32(c.State)})
			}
			sameItems(t, got, err, want)
		}
		var pods cri.ListPodSandboxResponse
		got, err = decodeItems(b, podFields)
		if proto.Unmarshal(b, &pods) == nil {
			var want []ListItem
			for _, p := range pods.Items {
				want = append(want, ListItem{ID: p.Id, State: int32(p.State)})
			}
			sameItems(t, got, err, want)
		}
	})
}

func sameItems(t *testing.T, got []ListItem, err error, want []ListItem) {
	t.Helper()
	if err != nil || len(got) != len(want) {
		t.Fatalf("read %v, %v; want %v", got, err, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("item %d is %+v, want %+v", i, got[i], want[i])
		}
	}
}
