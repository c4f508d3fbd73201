package conductor_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/kubelet"
	"github.com/trimtab/trimtab/internal/placement/none"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// staticLister is a kubelet with a static CPU manager.
type staticLister struct {
	podresources.UnimplementedPodResourcesListerServer

	mu   sync.Mutex
	cpus map[string][]int64 // by pod
}

func (l *staticLister) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	return &podresources.AllocatableResourcesResponse{CpuIds: []int64{0, 1, 2, 3}}, nil
}

func (l *staticLister) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := &podresources.ListPodResourcesResponse{}
	for name, cpus := range l.cpus {
		out.PodResources = append(out.PodResources, &podresources.PodResources{
			Namespace: "shop", Name: name, Containers: []*podresources.ContainerResources{{Name: "c", CpuIds: cpus}},
		})
	}
	return out, nil
}

// TestKubeletReassignsCPU: the kubelet has taken a CPU from a running container, and gives it to a
// new one, before it updates the former at the runtime. The answer to the creation of the new
// one takes the CPU from the old one.
func TestKubeletReassignsCPU(t *testing.T) {
	m, err := describe.Parse("1s x 1n x 4c")
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := kernel.NewCgroups(cgroup.V2, "0-3", "0")
	if err != nil {
		t.Fatal(err)
	}
	l := &staticLister{cpus: map[string][]int64{"old": {1, 2}}}
	con := conductor.New(conductor.Options{
		Machine: m, Keeper: keeper.New(&cgroup.Tree{FS: kernel, Version: cgroup.V2}), Grants: kubeletGrants(t, l),
		Policy: engine.Policy{
			Dialects: []string{"kubernetes"}, PlacementOn: true, Placement: kubelet.Policy{Policy: none.Policy{}}, Hooks: []hook.Hook{hook.CPUSetOptions{}},
			Pools: placement.Pools{Online: m.Online(), Shared: m.Online(), Reclaimed: m.Online()},
		},
		Key: []byte("a key of the test, 32 bytes long"), Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return time.Unix(0, 0) },
	})
	create := func(name, cpus string) {
		t.Helper()
		pod := &lifecycle.Pod{ID: "s-" + name, UID: "u-" + name, Namespace: "shop", Name: name, CgroupParent: "/kubepods/pod" + name}
		ctr := &lifecycle.Container{ID: "c-" + name, PodID: pod.ID, Name: "c"}
		ctr.Resources.CPU.CPUs = cpus
		for _, ev := range []lifecycle.Event{
			{Kind: lifecycle.RunPodSandbox, Pod: pod}, {Kind: lifecycle.CreateContainer, Pod: pod, Container: ctr},
		} {
			if _, err := con.Handle(t.Context(), carrier{}, ev); err != nil {
				t.Fatal(err)
			}
		}
	}
	create("old", "1-2")
	l.mu.Lock()
	l.cpus = map[string][]int64{"old": {1}, "new": {2}}
	l.mu.Unlock()
	create("new", "2")
	for name, cpus := range map[string]string{"old": "1", "new": "2"} {
		found, _ := nodeview.Explain(con, "shop", name, "c")
		if len(found) != 1 || found[0].CPUs != cpus || found[0].CPUGroup != placement.Exclusive.String() || name == "new" && len(found[0].Problems) > 0 {
			t.Errorf("%s: %+v", name, found)
		}
	}
}
