package agent_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/trimtab/trimtab/internal/agent/simulated"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/api"
	reports "github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// deviceKubelet is a kubelet that gave one container a device and a resource claim, and no CPUs.
type deviceKubelet struct {
	v1.UnimplementedPodResourcesListerServer

	away atomic.Bool
}

func device() *v1.ContainerDevices {
	return &v1.ContainerDevices{ResourceName: "example.com/nic", DeviceIds: []string{"nic1"}, Topology: &v1.TopologyInfo{Nodes: []*v1.NUMANode{{ID: 1}}}}
}

func claim() *v1.DynamicResource {
	return &v1.DynamicResource{ClaimName: "gpu", ClaimNamespace: "default", ClaimResources: []*v1.ClaimResource{{
		CdiDevices: []*v1.CDIDevice{{Name: "example.com/gpu=0"}}, DriverName: "gpu.example.com", PoolName: "node", DeviceName: "gpu-0",
	}}}
}

func (k *deviceKubelet) List(context.Context, *v1.ListPodResourcesRequest) (*v1.ListPodResourcesResponse, error) {
	if k.away.Load() {
		return nil, status.Error(codes.Unavailable, "away")
	}
	return &v1.ListPodResourcesResponse{PodResources: []*v1.PodResources{
		{Namespace: "default", Name: "pod", Containers: []*v1.ContainerResources{
			{Name: "proxy"}, {Name: "app", Devices: []*v1.ContainerDevices{device()}, DynamicResources: []*v1.DynamicResource{claim()}},
		}},
		{Namespace: "default", Name: "pending", Containers: []*v1.ContainerResources{{Name: "main"}}},
	}}, nil
}

func (k *deviceKubelet) GetAllocatableResources(context.Context, *v1.AllocatableResourcesRequest) (*v1.AllocatableResourcesResponse, error) {
	return &v1.AllocatableResourcesResponse{Devices: []*v1.ContainerDevices{device()}}, nil
}

func (k *deviceKubelet) serve(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubelet.sock")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	v1.RegisterPodResourcesListerServer(s, k)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-done })
	return path
}

const podResourcesScenario = `
name: podresources
about: A pod with a sidecar, an init container and an app container that own CPUs and memory of one NUMA node each.
node: {cpus: "1s x 2n x 4c, 8GiB/node", cgroup: v2, driver: cgroupfs}
config:
  pools: {reserved: "0"}
  placement: {policy: pools, reclaim: leftover, wholeCPUs: guaranteed}
  podspec: {waitMilliseconds: 1000}
steps:
  - name: its sidecar
    run:
      - pod:
          namespace: default
          name: pod
          qos: Guaranteed
          resources: {shares: 3072, quota: 300000}
          spec:
            nodeName: node1
            initContainers:
              - {name: proxy, restartPolicy: Always, resources: &one {requests: {cpu: "1", memory: 64Mi}, limits: {cpu: "1", memory: 64Mi}}}
              - {name: setup, resources: &two {requests: {cpu: "2", memory: 128Mi}, limits: {cpu: "2", memory: 128Mi}}}
            containers:
              - {name: app, resources: *two}
        containers:
          - {name: proxy, resources: {shares: 1024, quota: 100000}}
      - pod: {namespace: default, name: shared, qos: Burstable}
        containers: [{name: main, resources: {shares: 512}}]
  - name: its init container
    createContainer: {pod: default/pod, container: {name: setup, resources: {shares: 2048, quota: 200000}}}
  - name: starts
    startContainer: default/pod/setup
  - name: and ends
    stop: [default/pod/setup]
  - name: its app container
    createContainer: {pod: default/pod, container: {name: app, resources: {shares: 2048, quota: 200000}}}
  - name: starts
    startContainer: default/pod/app
  - name: it is removed
    remove: [default/pod]
`

func lister(t *testing.T, path string) v1.PodResourcesListerClient {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return v1.NewPodResourcesListerClient(conn)
}

// TestPodResources runs pods with an agent, and calls it as exporters call the kubelet.
func TestPodResources(t *testing.T) {
	s, err := scenario.Parse([]byte(podResourcesScenario))
	if err != nil {
		t.Fatal(err)
	}
	kubelet := &deviceKubelet{}
	kubeletSocket, path := kubelet.serve(t), filepath.Join(t.TempDir(), "pr", "kubelet.sock")
	client := lister(t, path)
	list := func() map[string]*v1.PodResources {
		answer, err := client.List(t.Context(), &v1.ListPodResourcesRequest{}, grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]*v1.PodResources{}
		for _, p := range answer.GetPodResources() {
			out[p.GetName()] = p
		}
		return out
	}
	mem := func(node int64, size uint64) *v1.ContainerMemory {
		return &v1.ContainerMemory{MemoryType: "memory", Size: size, Topology: &v1.TopologyInfo{Nodes: []*v1.NUMANode{{ID: node}}}}
	}
	ctr := func(name string, size uint64, cpus ...int64) *v1.ContainerResources {
		c := &v1.ContainerResources{Name: name, CpuIds: cpus}
		if size > 0 {
			c.Memory = []*v1.ContainerMemory{mem(0, size)}
		}
		return c
	}
	with := func(c *v1.ContainerResources) *v1.ContainerResources {
		c.Devices, c.DynamicResources = []*v1.ContainerDevices{device()}, []*v1.DynamicResource{claim()}
		return c
	}
	const mi = 1 << 20
	want := map[int][]*v1.ContainerResources{
		0: {ctr("proxy", 64*mi, 1), with(ctr("app", 0))},
		2: {ctr("proxy", 64*mi, 1), with(ctr("app", 0)), ctr("setup", 128*mi, 2, 3)},
		3: {ctr("proxy", 64*mi, 1), with(ctr("app", 0))},
		5: {ctr("proxy", 64*mi, 1), with(ctr("app", 128*mi, 2, 3))},
	}
	check := func(step int, _ *sim.Runtime, _ reports.Source) {
		if step == 5 {
			kubelet.away.Store(true) // devices stay
		}
		if want[step] == nil {
			return
		}
		got := list()["pod"]
		kubelets := proto.CloneOf(got)
		for _, c := range kubelets.GetContainers() {
			c.ProtoReflect().SetUnknown(nil) // the fields of Katalyst's API
		}
		if diff := cmp.Diff(want[step], kubelets.GetContainers(), protocmp.Transform()); diff != "" {
			t.Errorf("after step %d: -want +got:\n%s", step, diff)
		}
		one, err := client.Get(t.Context(), &v1.GetPodResourcesRequest{PodNamespace: "default", PodName: "pod"})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, one.GetPodResources(), protocmp.Transform()); diff != "" {
			t.Errorf("Get differs from List after step %d: %s", step, diff)
		}
	}
	err = sim.Run(t.Context(), s, sim.RunOptions{
		Agent: simulated.New,
		Configure: func(c *config.Config) {
			c.PodResources.Socket, c.PodSpec.Kubelet.PodResourcesSocket = path, kubeletSocket
		},
		AfterStep: check,
		AfterLastStep: func(context.Context, string, config.Config, api.Node) error {
			// The kubelet's last answer has the pod that ended, and is used for a moment.
			look := time.NewTicker(5 * time.Millisecond)
			defer look.Stop()
			for all := list(); all["pod"] != nil || all["shared"] == nil || all["pending"] != nil; all = list() {
				select {
				case <-look.C:
				case <-t.Context().Done():
					t.Fatalf("a pod that ended is listed, or one that runs is not: %v", all)
				}
			}
			checkAllocatable(t, client)
			if _, err := client.Get(t.Context(), &v1.GetPodResourcesRequest{PodNamespace: "default", PodName: "none"}); status.Code(err) != codes.NotFound {
				t.Errorf("an unknown pod: %v", err)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the socket's mode: %v, %v", info, err)
			}
			return nil
		},
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket stays: %v", err)
	}
}

func checkAllocatable(t *testing.T, client v1.PodResourcesListerClient) {
	t.Helper()
	got, err := client.GetAllocatableResources(t.Context(), &v1.AllocatableResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	node := func(id int64) *v1.ContainerMemory {
		return &v1.ContainerMemory{MemoryType: "memory", Size: 8 << 30, Topology: &v1.TopologyInfo{Nodes: []*v1.NUMANode{{ID: id}}}}
	}
	want := &v1.AllocatableResourcesResponse{
		CpuIds: []int64{1, 2, 3, 4, 5, 6, 7}, Memory: []*v1.ContainerMemory{node(0), node(1)}, Devices: []*v1.ContainerDevices{device()},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("allocatable: -want +got:\n%s", diff)
	}
}
