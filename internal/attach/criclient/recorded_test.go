package criclient

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// answering answers with recorded verbose statuses.
type answering struct {
	api.RuntimeServiceClient
	t    *testing.T
	name string // from a file
	pod  *api.PodSandboxStatus
}

func (a answering) read() map[string]string {
	a.t.Helper()
	text, err := os.ReadFile("testdata/crio-1.36.3/" + a.name)
	if err != nil {
		a.t.Fatal(err)
	}
	var recorded struct{ Info json.RawMessage }
	if err := json.Unmarshal(text, &recorded); err != nil {
		a.t.Fatal(err)
	}
	return map[string]string{"info": string(recorded.Info)}
}

func (a answering) PodSandboxStatus(context.Context, *api.PodSandboxStatusRequest, ...grpc.CallOption) (*api.PodSandboxStatusResponse, error) {
	return &api.PodSandboxStatusResponse{Status: a.pod, Info: a.read()}, nil
}

func (a answering) ContainerStatus(context.Context, *api.ContainerStatusRequest, ...grpc.CallOption) (*api.ContainerStatusResponse, error) {
	return &api.ContainerStatusResponse{Status: &api.ContainerStatus{}, Info: a.read()}, nil
}

// TestRecordedStatus: what CRI-O reports about pods and containers, without a configuration.
func TestRecordedStatus(t *testing.T) {
	for name, want := range map[string]*lifecycle.Resources{
		"inspectp-lsr.json": {
			CPU:    lifecycle.CPU{Shares: lifecycle.Some(uint64(1024)), Quota: lifecycle.Some(int64(100000)), Period: lifecycle.Some(uint64(100000))},
			Memory: lifecycle.Memory{Limit: lifecycle.Some(int64(268435456))},
		},
		"inspectp-be.json": {CPU: lifecycle.CPU{Shares: lifecycle.Some(uint64(2))}},
		"inspectp-ls.json": {CPU: lifecycle.CPU{Shares: lifecycle.Some(uint64(512))}},
	} {
		read := func(s *api.PodSandboxStatus) (*lifecycle.Pod, error) {
			return (&Client{calls: answering{t: t, name: name, pod: s}}).Pod(t.Context(), "p")
		}
		p, err := read(&api.PodSandboxStatus{Id: "p"})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, p.Resources); d != "" || p.CgroupParent == "" || p.Overhead != nil {
			t.Errorf("%s: below %q, overhead %v, resources\n%s", name, p.CgroupParent, p.Overhead, d)
		}
		// What a pod's author writes there must not count as the runtime's report.
		for _, own := range []*api.PodSandboxStatus{
			{Annotations: map[string]string{"pod-linux-resources.crio.io": "{}"}}, {Labels: map[string]string{"pod-linux-resources.crio.io": "x"}},
			{Annotations: map[string]string{"pod-linux-resources.crio.io": "{}", "io.kubernetes.cri-o.CgroupParent": "/theirs"}},
		} {
			if p, err := read(own); err != nil || p.Resources != nil || own.Annotations["io.kubernetes.cri-o.CgroupParent"] != "" && p.CgroupParent != "" {
				t.Errorf("%s: it was believed: %+v (%v)", name, p.Resources, err)
			}
		}
	}
	c, err := (&Client{calls: answering{t: t, name: "inspect-be.json"}}).Container(t.Context(), "c", "p")
	if err != nil || c.Resources.CPU.Shares.V != 2 || c.CgroupsPath == "" || c.PID == 0 {
		t.Errorf("%+v (%v)", c.Container, err)
	}
}
