package sim

import (
	"cmp"
	"context"
	"maps"
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
	"github.com/trimtab/trimtab/internal/topology"
)

// podResourcesServer serves the PodResources API (v1) of a kubelet with static CPU and memory managers.
type podResourcesServer struct {
	podresources.UnimplementedPodResourcesListerServer

	socket           string
	grpc             *grpc.Server
	serving          sync.WaitGroup                                             // waits for the goroutine that serves the API
	allocatable      []int64                                                    // the ids of the CPUs that the kubelet can grant
	listGrants       func() (map[scenario.Ref]map[string]scenario.Static, bool) // the grants by pod and container; false while unreachable
	listClaimDevices func() map[scenario.Ref]map[string][]string                // the CDI devices of claims by pod and container
}

// listen serves the API on a socket in dir. If m is not nil, it serves the API in m, which connects client and server
// by pipes in this process.
func (g *podResourcesServer) listen(dir string, cpus []int, listGrants func() (map[scenario.Ref]map[string]scenario.Static, bool), listClaimDevices func() map[scenario.Ref]map[string][]string, m *pipeNetwork) error {
	g.socket, g.listGrants, g.listClaimDevices = filepath.Join(dir, "podresources.sock"), listGrants, listClaimDevices
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

func (g *podResourcesServer) stop() {
	g.grpc.Stop()
	g.serving.Wait()
}

// GetAllocatableResources lists the CPUs that the kubelet can grant.
func (g *podResourcesServer) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	return &podresources.AllocatableResourcesResponse{CpuIds: g.allocatable}, nil
}

// List lists the granted CPUs, memory nodes and devices, and the CDI devices of claims.
func (g *podResourcesServer) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	given, ok := g.listGrants()
	if !ok {
		return nil, status.Error(codes.Unavailable, "the scenario has made the kubelet unreachable")
	}
	claimed := g.listClaimDevices()
	for ref, containers := range claimed { // adds pods that have claims but no other grants
		all := map[string]scenario.Static{}
		for name := range containers {
			all[name] = scenario.Static{}
		}
		maps.Copy(all, given[ref])
		given[ref] = all
	}
	out := &podresources.ListPodResourcesResponse{}
	for ref, containers := range given {
		namespace, podName, _ := ref.Names()
		pod := &podresources.PodResources{Namespace: namespace, Name: podName}
		for name, s := range containers {
			c, err := grantOf(name, &s, claimed[ref][name])
			if err != nil {
				return nil, err
			}
			pod.Containers = append(pod.Containers, c)
		}
		slices.SortFunc(pod.Containers, func(a, b *podresources.ContainerResources) int { return cmp.Compare(a.Name, b.Name) })
		out.PodResources = append(out.PodResources, pod)
	}
	return out, nil
}

// grantOf returns the kubelet's report about a container: the container's grants, and the CDI devices of its claims.
func grantOf(name string, s *scenario.Static, devices []string) (*podresources.ContainerResources, error) {
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
	for _, resource := range slices.Sorted(maps.Keys(s.Devices)) {
		nodes, err := topology.ParseList(s.Devices[resource])
		if err != nil {
			return nil, err
		}
		d := &podresources.ContainerDevices{ResourceName: resource, DeviceIds: []string{"0"}}
		for _, id := range nodes {
			if d.Topology == nil {
				d.Topology = &podresources.TopologyInfo{}
			}
			d.Topology.Nodes = append(d.Topology.Nodes, &podresources.NUMANode{ID: int64(id)})
		}
		c.Devices = append(c.Devices, d)
	}
	if len(devices) > 0 {
		r := &podresources.ClaimResource{}
		for _, d := range devices {
			r.CdiDevices = append(r.CdiDevices, &podresources.CDIDevice{Name: d})
		}
		c.DynamicResources = []*podresources.DynamicResource{{ClaimResources: []*podresources.ClaimResource{r}}}
	}
	return c, nil
}
