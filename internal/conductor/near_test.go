package conductor_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/placement/pools"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// plugged is a kubelet whose device plugin reports a NUMA node for the device of pod web.
type plugged struct {
	podresources.UnimplementedPodResourcesListerServer
}

func (plugged) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	return &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{{
		Namespace: "shop", Name: "web", Containers: []*podresources.ContainerResources{{
			Name: "main", Devices: []*podresources.ContainerDevices{{
				ResourceName: "nvidia.com/gpu", DeviceIds: []string{"GPU-aa"}, Topology: &podresources.TopologyInfo{Nodes: []*podresources.NUMANode{{ID: 1}}},
			}},
		}},
	}, {Namespace: "shop", Name: "other", Containers: []*podresources.ContainerResources{{Name: "main"}}}}}, nil
}

// TestNearGrantedDevices: the grants of a pod that should own CPUs are requested from the
// kubelet, although its annotations name no devices. It owns CPUs near its granted device, and
// grows there after a restart.
func TestNearGrantedDevices(t *testing.T) {
	t.Parallel()
	m, err := describe.Parse("1s x 2n x 4c")
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := kernel.NewCgroups(cgroup.V2, "0-7", "0-1")
	if err != nil {
		t.Fatal(err)
	}
	options := conductor.Options{
		Machine: m, Grants: kubeletGrants(t, plugged{}),
		Policy: engine.Policy{
			Dialects: []string{"katalyst", "kubernetes"}, PlacementOn: true, Hooks: []hook.Hook{hook.CPUSetOptions{}},
			Pools:     placement.Pools{Online: m.Online(), Shared: m.Online(), Reclaimed: m.Online()},
			Placement: &pools.Policy{Tree: choose.NewTree(m), NearDevices: true},
		},
		Key: []byte("a key of the test, 32 bytes long"), Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return time.Unix(0, 0) },
	}
	start := func() *conductor.Conductor {
		options.Keeper = keeper.New(&cgroup.Tree{FS: kernel, Version: cgroup.V2})
		return conductor.New(options)
	}
	handle := func(con *conductor.Conductor, ev lifecycle.Event) conductor.Answer {
		ans, err := con.Handle(t.Context(), carrier{}, ev)
		if err != nil {
			t.Fatal(err)
		}
		con.Flush()
		return ans
	}
	con := start()
	all := lifecycle.Event{Kind: lifecycle.Synchronize}
	for _, c := range []struct{ name, cpus, why string }{
		{"other", "0", ""}, {"web", "4", "near its devices (nvidia.com/gpu): 4 of 7 CPUs are left"},
	} {
		var r lifecycle.Resources
		r.CPU.Shares, r.CPU.Quota = lifecycle.Some[uint64](1024), lifecycle.Some[int64](100000)
		pod := &lifecycle.Pod{
			ID: "s-" + c.name, UID: "u-" + c.name, Namespace: "shop", Name: c.name, CgroupParent: "/kubepods/pod" + c.name, Resources: &r,
			Annotations: map[string]string{intent.KatalystQoSLevel: "dedicated_cores"},
		}
		ctr := &lifecycle.Container{ID: "c-" + c.name, PodID: pod.ID, Name: "main", Resources: r, State: lifecycle.StateCreated}
		handle(con, lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: pod})
		for _, v := range handle(con, lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: ctr}).Values {
			if v.Field == lifecycle.Annotation {
				ctr.Annotations = map[string]string{v.Key: v.Text}
			}
		}
		found, _ := nodeview.Explain(con, "shop", c.name, "main")
		if len(found) != 1 || found[0].CPUs != c.cpus || !strings.Contains(found[0].CPUGroupWhy, c.why) {
			t.Fatalf("%s: %+v; want CPUs %s, %q", c.name, found, c.cpus, c.why)
		}
		all.Pods, all.Containers = append(all.Pods, pod), append(all.Containers, ctr)
	}
	con = start()
	handle(con, all)
	var r lifecycle.Resources
	r.CPU.Shares, r.CPU.Quota = lifecycle.Some[uint64](3072), lifecycle.Some[int64](300000)
	handle(con, lifecycle.Event{Kind: lifecycle.UpdateContainer, Pod: all.Pods[1], Container: all.Containers[1], Requested: &r})
	if found, _ := nodeview.Explain(con, "shop", "web", "main"); len(found) != 1 || found[0].CPUs != "4-6" {
		t.Errorf("it grew to %+v, want CPUs 4-6", found)
	}
}
