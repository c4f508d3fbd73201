package sim

import (
	"cmp"
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/socket"
)

// granter serves the PodResources API (v1) of a kubelet with static CPU and memory managers.
type granter struct {
	podresources.UnimplementedPodResourcesListerServer

	socket      string
	grpc        *grpc.Server
	serving     sync.WaitGroup
	allocatable []int64
	tell        func() (map[scenario.Ref]map[string]scenario.Static, bool)
}

func (g *granter) listen(dir string, cpus []int, tell func() (map[scenario.Ref]map[string]scenario.Static, bool), m *memory) error {
	g.socket, g.tell = filepath.Join(dir, "podresources.sock"), tell
	for _, id := range cpus {
		g.allocatable = append(g.allocatable, int64(id))
	}
	var l net.Listener
	var err error
	if m == nil {
		l, err = socket.Listen(context.Background(), g.socket, 0o600)
	} else if l, err = m.Listen(g.socket); err == nil {
		err = os.WriteFile(g.socket, nil, 0o600) // clients check that the socket file exists
	}
	if err != nil {
		return err
	}
	g.grpc = grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(g.grpc, g)
	g.serving.Go(func() { _ = g.grpc.Serve(l) }) // ends at stop
	return nil
}

func (g *granter) stop() {
	g.grpc.Stop()
	g.serving.Wait()
}

// GetAllocatableResources lists the CPUs that the kubelet can grant.
func (g *granter) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	return &podresources.AllocatableResourcesResponse{CpuIds: g.allocatable}, nil
}

// List lists the granted CPUs and memory.
func (g *granter) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	given, ok := g.tell()
	if !ok {
		return nil, status.Error(codes.Unavailable, "away")
	}
	out := &podresources.ListPodResourcesResponse{}
	for ref, containers := range given {
		namespace, name, _ := ref.Names()
		pod := &podresources.PodResources{Namespace: namespace, Name: name}
		for name, s := range containers {
			c := &podresources.ContainerResources{Name: name}
			cpus, mems, err := s.IDs()
			if err != nil {
				return nil, err
			}
			for _, id := range cpus {
				c.CpuIds = append(c.CpuIds, int64(id))
			}
			for _, id := range mems {
				c.Memory = append(c.Memory, &podresources.ContainerMemory{
					MemoryType: "memory", Topology: &podresources.TopologyInfo{Nodes: []*podresources.NUMANode{{ID: int64(id)}}},
				})
			}
			pod.Containers = append(pod.Containers, c)
		}
		slices.SortFunc(pod.Containers, func(a, b *podresources.ContainerResources) int { return cmp.Compare(a.Name, b.Name) })
		out.PodResources = append(out.PodResources, pod)
	}
	return out, nil
}
