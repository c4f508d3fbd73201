package podresources_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/podresources"
	"github.com/trimtab/trimtab/internal/socket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs a server on a new socket, and returns a client of it.
func serve(t testing.TB, node func() nodeview.Holdings, kubelet podresources.Kubelet) (path string, client v1.PodResourcesListerClient) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "kubelet.sock")
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- podresources.New(node, kubelet, nil, slog.New(slog.DiscardHandler)).Serve(ctx, path) }()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return path, v1.NewPodResourcesListerClient(conn)
}

// hung is a kubelet that does not answer in time.
type hung struct {
	mu   sync.Mutex
	asks int
}

func (h *hung) List(ctx context.Context) (*v1.ListPodResourcesResponse, error) {
	h.mu.Lock()
	h.asks++
	h.mu.Unlock()
	<-ctx.Done()
	return nil, ctx.Err()
}

func (h *hung) Allocatable(ctx context.Context) (*v1.AllocatableResourcesResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func one() nodeview.Holdings {
	return nodeview.Holdings{Synced: true, CPUs: []int{0, 1}, Pods: []nodeview.PodHoldings{{
		Namespace: "d", Name: "p", Containers: []nodeview.ContainerHoldings{{Name: "c", Listed: true, CPUs: []int{1}}, {Name: "gone", CPUs: []int{0}}},
	}}}
}

// TestNotSynced: before the runtime's list is known, no answer says that nothing is owned.
func TestNotSynced(t *testing.T) {
	t.Parallel()
	_, c := serve(t, func() nodeview.Holdings { return nodeview.Holdings{} }, nil)
	_, errList := c.List(t.Context(), &v1.ListPodResourcesRequest{})
	_, errGet := c.Get(t.Context(), &v1.GetPodResourcesRequest{})
	_, errAll := c.GetAllocatableResources(t.Context(), &v1.AllocatableResourcesRequest{})
	for _, err := range []error{errList, errGet, errAll} {
		if status.Code(err) != codes.Unavailable {
			t.Errorf("got %v", err)
		}
	}
}

// TestHungKubelet: the answer has what the agent knows, and many clients wait for one request to the kubelet.
func TestHungKubelet(t *testing.T) {
	t.Parallel()
	k := &hung{}
	_, c := serve(t, one, k)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			answer, err := c.List(t.Context(), &v1.ListPodResourcesRequest{})
			if err != nil || len(answer.GetPodResources()) != 1 {
				t.Errorf("%v, %v", answer, err)
				return
			}
			if ctrs := answer.GetPodResources()[0].GetContainers(); len(ctrs) != 1 || len(ctrs[0].GetCpuIds()) != 1 || ctrs[0].GetCpuIds()[0] != 1 {
				t.Errorf("got %v", ctrs)
			}
		})
	}
	all.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.asks != 1 {
		t.Errorf("the kubelet was asked %d times", k.asks)
	}
}

// TestPanic: a panic fails its call, and the agent continues.
func TestPanic(t *testing.T) {
	t.Parallel()
	first := true
	_, c := serve(t, func() nodeview.Holdings {
		if first {
			first = false
			panic("planted")
		}
		return one()
	}, nil)
	if _, err := c.List(t.Context(), &v1.ListPodResourcesRequest{}); status.Code(err) != codes.Internal {
		t.Errorf("got %v", err)
	}
	if _, err := c.List(t.Context(), &v1.ListPodResourcesRequest{}); err != nil {
		t.Error(err)
	}
}

func TestSocket(t *testing.T) {
	t.Parallel()
	server := podresources.New(one, nil, nil, slog.New(slog.DiscardHandler))
	t.Run("taken", func(t *testing.T) {
		t.Parallel()
		path, c := serve(t, one, nil)
		if _, err := c.List(t.Context(), &v1.ListPodResourcesRequest{}); err != nil {
			t.Fatal(err)
		}
		err := server.Serve(t.Context(), path)
		if !errors.Is(err, socket.ErrInUse) || !strings.Contains(err.Error(), "podResources.socket") {
			t.Errorf("got %v", err)
		}
		if _, err := c.List(t.Context(), &v1.ListPodResourcesRequest{}); err != nil {
			t.Errorf("the first server was harmed: %v", err)
		}
	})
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := server.Serve(t.Context(), path); err == nil || !strings.Contains(err.Error(), "is not a socket") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("stale", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "s")
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		l.Close()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- server.Serve(ctx, path) }()
		conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := v1.NewPodResourcesListerClient(conn).List(t.Context(), &v1.ListPodResourcesRequest{}, grpc.WaitForReady(true)); err != nil {
			t.Error(err)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// full is a kubelet that lists 250 pods of 4 containers.
type full struct{ list *v1.ListPodResourcesResponse }

func (f full) List(context.Context) (*v1.ListPodResourcesResponse, error) { return f.list, nil }
func (f full) Allocatable(context.Context) (*v1.AllocatableResourcesResponse, error) {
	return &v1.AllocatableResourcesResponse{}, nil
}

// BenchmarkList1000 measures an answer about 1,000 containers over the socket. nodeview's
// BenchmarkHoldings1000 measures the part that reads the state.
func BenchmarkList1000(b *testing.B) {
	h, k := nodeview.Holdings{Synced: true}, &v1.ListPodResourcesResponse{}
	for i := range 250 {
		p := nodeview.PodHoldings{Namespace: "d", Name: fmt.Sprint("pod", i)}
		kp := &v1.PodResources{Namespace: p.Namespace, Name: p.Name}
		for j := range 4 {
			name := fmt.Sprint("c", j)
			p.Containers = append(p.Containers, nodeview.ContainerHoldings{
				Name: name, Listed: true, CPUs: []int{i, i + 256}, Memory: []nodeview.MemoryHolding{{Type: "memory", Node: j, Bytes: 1 << 30}},
			})
			kp.Containers = append(kp.Containers, &v1.ContainerResources{Name: name, Devices: []*v1.ContainerDevices{{ResourceName: "example.com/nic", DeviceIds: []string{"a"}}}})
		}
		h.Pods, k.PodResources = append(h.Pods, p), append(k.PodResources, kp)
	}
	_, c := serve(b, func() nodeview.Holdings { return h }, full{k})
	for b.Loop() {
		if answer, err := c.List(b.Context(), &v1.ListPodResourcesRequest{}); err != nil || len(answer.GetPodResources()) != 250 {
			b.Fatal(err)
		}
	}
}

// TestCDIDevices: an answer has the CDI devices that a container has exclusively, after the devices that the kubelet
// reports. The cached answer of the kubelet does not change.
func TestCDIDevices(t *testing.T) {
	t.Parallel()
	given := &v1.ListPodResourcesResponse{PodResources: []*v1.PodResources{{
		Namespace: "d", Name: "p", Containers: []*v1.ContainerResources{{Name: "c", Devices: []*v1.ContainerDevices{{ResourceName: "k.io/nic", DeviceIds: []string{"1"}}}}},
	}}}
	node := func() nodeview.Holdings {
		h := one()
		h.Devices = []nodeview.DeviceHolding{{Name: "v.com/gpu=0", Nodes: []int{1}}, {Name: "v.com/gpu=1"}}
		h.Pods[0].Containers[0].Devices = []nodeview.DeviceHolding{{Name: "v.com/gpu=0", Nodes: []int{1}}, {Name: "v.com/nic=a"}}
		return h
	}
	_, c := serve(t, node, full{list: given})
	for range 2 {
		got, err := c.List(t.Context(), &v1.ListPodResourcesRequest{})
		if err != nil || len(got.GetPodResources()) != 1 {
			t.Fatal(got, err)
		}
		var all []string
		for _, d := range got.GetPodResources()[0].GetContainers()[0].GetDevices() {
			all = append(all, d.GetResourceName()+"="+strings.Join(d.GetDeviceIds(), ","))
		}
		if text := strings.Join(all, " "); text != "k.io/nic=1 v.com/gpu=0 v.com/nic=a" {
			t.Errorf("devices are %s", text)
		}
	}
	got, err := c.GetAllocatableResources(t.Context(), &v1.AllocatableResourcesRequest{})
	want := []*v1.ContainerDevices{
		{ResourceName: "v.com/gpu", DeviceIds: []string{"0"}, Topology: &v1.TopologyInfo{Nodes: []*v1.NUMANode{{ID: 1}}}}, {ResourceName: "v.com/gpu", DeviceIds: []string{"1"}},
	}
	if diff := cmp.Diff(want, got.GetDevices(), protocmp.Transform()); err != nil || diff != "" {
		t.Errorf("%v, allocatable: %s", err, diff)
	}
	if n := len(given.GetPodResources()[0].GetContainers()[0].GetDevices()); n != 1 {
		t.Errorf("the kubelet's answer has %d devices now", n)
	}
}
