package conductor_test

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
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
	"github.com/trimtab/trimtab/internal/placement/none"
	"github.com/trimtab/trimtab/internal/podspec"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// lister is a kubelet's PodResources API.
type lister struct {
	podresources.UnimplementedPodResourcesListerServer
}

func (lister) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	pod := func(namespace, name, container, id string) *podresources.PodResources {
		return &podresources.PodResources{Namespace: namespace, Name: name, Containers: []*podresources.ContainerResources{{
			Name: container, Devices: []*podresources.ContainerDevices{{ResourceName: "nvidia.com/gpu", DeviceIds: []string{id}}},
		}, {Name: "other"}}}
	}
	return &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{
		pod("shop", "web", "a", "GPU-aa"), pod("shop", "thief", "a", "GPU-bb"), pod("locked", "web", "a", "GPU-aa"),
		pod("shop", "odd", "a", "GPU-\u0430\u0430"), pod("shop", "path", "a", "../GPU-aa"),
	}}, nil
}

// kubeletGrants reads a kubelet's PodResources API until the test ends.
func kubeletGrants(t *testing.T, kubelet podresources.PodResourcesListerServer) *podspec.Grants {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "kubelet.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, kubelet)
	g := podspec.NewGrants(podspec.GrantsOptions{Socket: socket, Wait: 10 * time.Second})
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(l) })
	wg.Go(func() { _ = g.Run(ctx) })
	t.Cleanup(func() {
		stop()
		server.Stop()
		wg.Wait()
	})
	return g
}

// TestGrantedDevices: by default a container gets only the device that the kubelet granted to
// it, and not that of another pod or container. A rule that refuses has priority.
func TestGrantedDevices(t *testing.T) {
	m, err := describe.Parse("1s x 1n x 4c")
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := kernel.NewCgroups(cgroup.V2, "0-3", "0")
	if err != nil {
		t.Fatal(err)
	}
	con := conductor.New(conductor.Options{
		Machine: m, Keeper: keeper.New(&cgroup.Tree{FS: kernel, Version: cgroup.V2}), Grants: kubeletGrants(t, lister{}),
		Policy: engine.Policy{
			Dialects:  []string{"koordinator", "kubernetes"},
			Placement: none.Policy{},
			Pools:     placement.Pools{Online: m.Online(), Shared: m.Online(), Reclaimed: m.Online()},
			Hooks:     []hook.Hook{hook.GPU{Devices: hook.GPUByCDI, ByUUID: true}},
			Rules: intent.Rules{
				{Kinds: []intent.Kind{intent.Devices}, Namespaces: []string{"locked"}, Decision: intent.Refuse, Name: "rule 1"},
			},
		},
		Key: []byte("a key of the test, 32 bytes long"), Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return time.Unix(0, 0) },
	})
	for _, c := range []struct {
		namespace, name, container, ask string
		why                             string // the reason of the device's value; "" for no device
		problem                         string
	}{
		{"shop", "web", "a", "GPU-aa", "granted by the kubelet as nvidia.com/gpu (authorization: default)", ""},
		{"shop", "web", "other", "GPU-aa", "", "(authorization: default)"},
		{"shop", "thief", "a", "GPU-aa", "", "(authorization: default)"},
		{"shop", "unknown", "a", "GPU-aa", "", "(authorization: default)"},
		{"elsewhere", "web", "a", "GPU-aa", "", "(authorization: default)"},
		{"locked", "web", "a", "GPU-aa", "", "(authorization: rule 1)"},
		{"shop", "odd", "a", "GPU-aa", "", "(authorization: default)"},
		{"shop", "odd", "a", "GPU-\u0430\u0430", "", "has no valid UUID"},
		{"shop", "path", "a", "../GPU-aa", "", "has no valid UUID"},
	} {
		id := strings.Join([]string{c.namespace, c.name, c.container, c.ask}, "-")
		pod := &lifecycle.Pod{
			ID: "s-" + id, UID: "u-" + id, Namespace: c.namespace, Name: c.name, CgroupParent: "/kubepods/pod" + c.name,
			Annotations: map[string]string{intent.KoordDevices: `{"gpu":[{"minor":0,"id":"` + c.ask + `"}]}`},
		}
		ctr := &lifecycle.Container{ID: "c-" + id, PodID: pod.ID, Name: c.container}
		if _, err := con.Handle(t.Context(), carrier{}, lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: pod}); err != nil {
			t.Fatal(err)
		}
		ans, err := con.Handle(t.Context(), carrier{}, lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: ctr})
		if err != nil {
			t.Fatal(err)
		}
		why := ""
		for _, v := range ans.Values {
			if v.Field == lifecycle.CDIDevice {
				why = v.Why.Text
			}
		}
		if (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s: handed over: %q", id, why)
		}
		found, _ := nodeview.Explain(con, c.namespace, c.name, c.container)
		var problems []string
		for _, p := range found[len(found)-1].Problems {
			problems = append(problems, p.Reason)
		}
		if text := strings.Join(problems, "\n"); (text == "") != (c.problem == "") || !strings.Contains(text, c.problem) {
			t.Errorf("%s: problems: %q", id, text)
		}
	}
}
