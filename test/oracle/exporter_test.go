package oracle

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"testing"

	"github.com/jaypipes/ghw"
	"github.com/jaypipes/ghw/pkg/cpu"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	"sigs.k8s.io/node-feature-discovery/pkg/resourcemonitor"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/test/conformance"
)

// nicKubelet is a kubelet without managers of CPUs and memory, which gave one container a nic of NUMA node 1.
type nicKubelet struct {
	podresources.UnimplementedPodResourcesListerServer
}

func nics(ids ...string) []*podresources.ContainerDevices {
	return []*podresources.ContainerDevices{{
		ResourceName: "example.com/nic", DeviceIds: ids, Topology: &podresources.TopologyInfo{Nodes: []*podresources.NUMANode{{ID: 1}}},
	}}
}

func (nicKubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	return &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{
		{Namespace: "default", Name: "owner", Containers: []*podresources.ContainerResources{{Name: "main", Devices: nics("nic1")}}},
	}}, nil
}

func (nicKubelet) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	return &podresources.AllocatableResourcesResponse{Devices: nics("nic1", "nic2")}, nil
}

func (k nicKubelet) serve(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "k.sock")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(s, k)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-done })
	return path
}

const exportedNode = `
name: exported
about: An owner of two CPUs, 128 MiB and a nic on NUMA node 1.
node: {cpus: "1s x 2n x 4c, 8GiB/node", cgroup: v2, driver: cgroupfs}
config:
  pools: {reserved: "0"}
  placement: {policy: pools, wholeCPUs: guaranteed}
  podspec: {waitMilliseconds: 1000}
steps:
  - name: it runs
    run:
      - pod:
          namespace: default
          name: owner
          qos: Guaranteed
          resources: {shares: 2048, quota: 200000}
          spec:
            nodeName: node1
            containers: [{name: main, resources: {requests: &two {cpu: "2", memory: 128Mi}, limits: *two}}]
        containers: [{name: main, resources: {shares: 2048, quota: 200000, memory: 134217728}}]
`

// exported returns what the exporter of node-feature-discovery reports of a socket: "NODE RESOURCE available/allocatable".
func exported(t *testing.T, socket string) (all []string) {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := podresources.NewPodResourcesListerClient(conn)
	two := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("128Mi")}
	pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	if err := pods.Add(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "owner"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: two, Limits: two}}}},
	}); err != nil {
		t.Fatal(err)
	}
	scanner, err := resourcemonitor.NewPodResourcesScanner("*", client, v1.NewPodLister(pods), fake.NewClientset(), false)
	if err != nil {
		t.Fatal(err)
	}
	found, err := scanner.Scan()
	if err != nil {
		t.Fatal(err)
	}
	allocatable, err := client.GetAllocatableResources(t.Context(), &podresources.AllocatableResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	topo := &ghw.TopologyInfo{}
	for id := range 2 {
		n := &ghw.TopologyNode{ID: id, Distances: []int{10 + 11*id, 21 - 11*id}}
		for core := range 4 {
			n.Cores = append(n.Cores, &cpu.ProcessorCore{ID: core, LogicalProcessors: []int{id*4 + core}})
		}
		topo.Nodes = append(topo.Nodes, n)
	}
	for _, z := range resourcemonitor.NewResourcesAggregatorFromData(topo, allocatable, nil, resourcemonitor.ExcludeResourceList{}).Aggregate(found.PodResources) {
		for _, r := range z.Resources {
			all = append(all, fmt.Sprintf("%s %s %s/%s", z.Name, r.Name, r.Available.String(), r.Allocatable.String()))
		}
	}
	slices.Sort(all)
	return all
}

// TestExporter: the exporter of node-feature-discovery, which reads the kubelet's PodResources API, reads that of an agent
// in its place. It then reports the CPUs and memory that the agent assigned, beside the kubelet's devices.
func TestExporter(t *testing.T) {
	quiet()
	s, err := scenario.Parse([]byte(exportedNode))
	if err != nil {
		t.Fatal(err)
	}
	kubelet, path := nicKubelet{}.serve(t), filepath.Join(t.TempDir(), "a.sock")
	err = sim.Run(t.Context(), s, sim.RunOptions{
		Agent: conformance.NewAgent,
		Configure: func(c *config.Config) {
			c.PodResources.Socket, c.PodSpec.Kubelet.PodResourcesSocket = path, kubelet
		},
		AfterLastStep: func(context.Context, string, config.Config, api.Node) error {
			want := []string{
				"node-0 cpu 3/3", "node-0 memory 8589934592/8589934592",
				"node-1 cpu 2/4", "node-1 example.com/nic 1/2", "node-1 memory 8455716864/8589934592",
			}
			if got := exported(t, path); !slices.Equal(got, want) {
				t.Errorf("of the agent's socket: %q, want %q", got, want)
			}
			want = []string{"node-0 cpu 0/0", "node-1 example.com/nic 1/2"}
			if got := exported(t, kubelet); !slices.Equal(got, want) {
				t.Errorf("of the kubelet's socket: %q, want %q", got, want)
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
}
