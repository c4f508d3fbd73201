package cri

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

// answering answers verbose statuses as they were recorded.
type answering struct {
	api.RuntimeServiceClient
	t    *testing.T
	name string // of a file
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
	out := &api.PodSandboxStatusResponse{Status: &api.PodSandboxStatus{}}
	out.Info = a.read()
	return out, nil
}

func (a answering) ContainerStatus(context.Context, *api.ContainerStatusRequest, ...grpc.CallOption) (*api.ContainerStatusResponse, error) {
	out := &api.ContainerStatusResponse{Status: &api.ContainerStatus{}}
	out.Info = a.read()
	return out, nil
}

// TestRecordedStatus: what CRI-O tells of pods and containers, which has no
// configuration.
func TestRecordedStatus(t *testing.T) {
	for name, want := range map[string]*lifecycle.Resources{
		"inspectp-lsr.json": {
			CPU:    lifecycle.CPU{Shares: lifecycle.Some(uint64(1024)), Quota: lifecycle.Some(int64(100000)), Period: lifecycle.Some(uint64(100000))},
			Memory: lifecycle.Memory{Limit: lifecycle.Some(int64(268435456))},
		},
		"inspectp-be.json": {CPU: lifecycle.CPU{Shares: lifecycle.Some(uint64(2))}},
		"inspectp-ls.json": {CPU: lifecycle.CPU{Shares: lifecycle.Some(uint64(512))}},
	} {
		b := &client{calls: answering{t: t, name: name}}
		p, err := b.pod(t.Context(), &api.PodSandbox{Id: "p"})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, p.Resources); d != "" || p.CgroupParent == "" || p.Overhead != nil {
			t.Errorf("%s: below %q, overhead %v, resources\n%s", name, p.CgroupParent, p.Overhead, d)
		}
		// What a pod's author writes there is not the runtime's word.
		for _, own := range []*api.PodSandbox{
			{Annotations: map[string]string{"pod-linux-resources.crio.io": "{}"}}, {Labels: map[string]string{"pod-linux-resources.crio.io": "x"}},
		} {
			if p, err := b.pod(t.Context(), own); err != nil || p.Resources != nil {
				t.Errorf("%s: it was believed: %+v (%v)", name, p.Resources, err)
			}
		}
	}
	b := &client{calls: answering{t: t, name: "inspect-be.json"}}
	c, err := b.container(t.Context(), "c", "p")
	if err != nil || c.Resources.CPU.Shares.V != 2 || c.CgroupsPath == "" || c.PID == 0 {
		t.Errorf("%+v (%v)", c, err)
	}
}
