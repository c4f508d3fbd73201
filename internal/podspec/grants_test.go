package podspec

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// resourcesServer is a kubelet's PodResources API on a real socket.
type resourcesServer struct {
	podresources.UnimplementedPodResourcesListerServer

	mu          sync.Mutex
	pods        []*podresources.PodResources
	allocatable []int64
	refuses     bool // whether to report allocatable resources
	hold        chan struct{}
	asked       int
}

func (s *resourcesServer) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuses {
		return nil, errors.New("PodResources API GetAllocatableResources disabled")
	}
	return &podresources.AllocatableResourcesResponse{CpuIds: s.allocatable}, nil
}

func (s *resourcesServer) List(ctx context.Context, _ *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	s.mu.Lock()
	s.asked++
	answer, hold := &podresources.ListPodResourcesResponse{PodResources: s.pods}, s.hold
	s.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return answer, nil
}

func (s *resourcesServer) say(pods ...*podresources.PodResources) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods = pods
}

// serveResources serves on a socket until the returned function is called.
func serveResources(t *testing.T, socket string, s *resourcesServer) func() {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(g, s)
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.Serve(l) })
	stop := sync.OnceFunc(func() {
		g.Stop()
		wg.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// gpuPod is a pod whose container was granted one GPU.
func gpuPod(name, container, id string) *podresources.PodResources {
	return &podresources.PodResources{Namespace: "shop", Name: name, Containers: []*podresources.ContainerResources{
		{Name: container, Devices: []*podresources.ContainerDevices{{ResourceName: "nvidia.com/gpu", DeviceIds: []string{id}}}},
	}}
}

func runGrants(t *testing.T, o GrantsOptions) *Grants {
	t.Helper()
	o.Retry = 5 * time.Millisecond
	g := NewGrants(o)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- g.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return g
}

func shopPod(uid, name string) *lifecycle.Pod {
	return &lifecycle.Pod{UID: uid, Namespace: "shop", Name: name}
}

// TestGrants: each container gets only its own devices; a new pod with the same name does not get the old
// one's devices; and a kubelet that restarts is asked again about unknown pods.
func TestGrants(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "kubelet.sock")
	s := &resourcesServer{}
	s.say(gpuPod("one", "a", "GPU-aa"), gpuPod("two", "a", "GPU-bb"))
	stop := serveResources(t, socket, s)
	g := runGrants(t, GrantsOptions{Socket: socket, Wait: 5 * time.Second})
	g.AwaitFirst(t.Context())

	g.Await(t.Context(), shopPod("u1", "one"))
	want := &lifecycle.KubeletGrants{UID: "u1", Namespace: "shop", Name: "one", Containers: map[string]lifecycle.DeviceGrant{
		"a": {IDs: map[string][]string{"nvidia.com/gpu": {"GPU-aa"}}},
	}, Static: map[string]lifecycle.StaticGrant{"a": {}}}
	if d := cmp.Diff(want, g.Granted(shopPod("u1", "one"))); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := g.Granted(shopPod("u1", "two")); got != nil {
		t.Errorf("another pod with this UID: %+v", got)
	}

	s.say(gpuPod("one", "a", "GPU-cc"))
	g.Await(t.Context(), shopPod("u1b", "one"))
	if got := g.Granted(shopPod("u1b", "one")).DevicesOf("a").IDs["nvidia.com/gpu"]; !cmp.Equal(got, []string{"GPU-cc"}) {
		t.Errorf("a pod of the same name: %v", got)
	}
	g.mu.Lock()
	if g.knownGrants["u1"] != nil {
		t.Error("the pod that had the name before is still known by it")
	}
	g.mu.Unlock()

	stop()
	g.Await(t.Context(), shopPod("u2", "late"))
	if g.Granted(shopPod("u2", "late")) != nil || g.State().Up {
		t.Error("a kubelet that is gone answered")
	}
	if g.Granted(shopPod("u1b", "one")) == nil {
		t.Error("what was known is lost with the kubelet")
	}
	s.say(gpuPod("one", "a", "GPU-cc"), gpuPod("late", "a", "GPU-dd"))
	serveResources(t, socket, s)
	until(t, "the kubelet is asked again", func() bool { return g.Granted(shopPod("u2", "late")) != nil })
}

// TestGrantsAreTold: a pod for which no request waits is asked about and reported.
func TestGrantsAreTold(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "kubelet.sock")
	s := &resourcesServer{}
	s.say(gpuPod("one", "a", "GPU-aa"))
	serveResources(t, socket, s)
	told := make(chan []string, 1)
	g := runGrants(t, GrantsOptions{Socket: socket, Changed: func(uids []string) { told <- uids }})
	if g.Granted(shopPod("u1", "one")) != nil {
		t.Fatal("known before anybody was asked")
	}
	select {
	case uids := <-told:
		if !cmp.Equal(uids, []string{"u1"}) || g.Granted(shopPod("u1", "one")) == nil {
			t.Errorf("Changed was called with %v", uids)
		}
	case <-time.After(time.Minute):
		t.Fatal("Changed was not called")
	}
}

// TestGrantsOfLateKubelet: a kubelet that starts after the agent, or again, creates pods at once. The first request
// about one asks it, without a pause after the last failure.
func TestGrantsOfLateKubelet(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "kubelet.sock")
	s := &resourcesServer{}
	s.say(gpuPod("one", "a", "GPU-aa"), gpuPod("two", "a", "GPU-bb"))
	g := NewGrants(GrantsOptions{Socket: socket, Wait: 30 * time.Second}) // without Run, nothing else asks
	g.Await(t.Context(), shopPod("u1", "one"))
	if st := g.State(); st.Up || st.Err == nil {
		t.Fatalf("%+v", st)
	}
	for uid, name := range map[string]string{"u1": "one", "u2": "two"} {
		stop := serveResources(t, socket, s)
		if g.Await(t.Context(), shopPod(uid, name)); g.Known(uid) == nil {
			t.Errorf("the kubelet was not asked about %s: %+v", name, g.State())
		}
		stop()
		if g.Await(t.Context(), shopPod("u3", "three")); g.State().Up {
			t.Error("a kubelet that is gone answered")
		}
	}
	if err := g.closeConn(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestSlowGrants: a kubelet that does not answer delays a runtime only once, and only up to the limit.
func TestSlowGrants(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "kubelet.sock")
	s := &resourcesServer{}
	serveResources(t, socket, s)
	g := runGrants(t, GrantsOptions{Socket: socket, Wait: 30 * time.Millisecond})
	g.AwaitFirst(t.Context())
	s.mu.Lock()
	s.hold = make(chan struct{})
	s.mu.Unlock()
	start := time.Now()
	for _, uid := range []string{"u1", "u2", "u3"} {
		g.Await(t.Context(), shopPod(uid, uid))
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("held up for %v", took)
	}
	close(s.hold)
}

// TestNoGrants: without a kubelet there are no grants, and State has the reason.
func TestNoGrants(t *testing.T) {
	for socket, want := range map[string]string{"": "podResourcesSocket is empty", "/nonexistent/kubelet.sock": "does not exist"} {
		g := runGrants(t, GrantsOptions{Socket: socket, Wait: time.Hour})
		g.AwaitFirst(t.Context())
		g.Await(t.Context(), shopPod("u1", "one"))
		if st := g.State(); g.Granted(shopPod("u1", "one")) != nil || st.Up || st.Err == nil || !strings.Contains(st.Err.Error(), want) {
			t.Errorf("%q: %+v", socket, st)
		}
	}
}

// TestGrantsOf: the grants of a container, and invalid answers.
func TestGrantsOf(t *testing.T) {
	pod := gpuPod("one", "a", "GPU-aa")
	pod.Containers[0].Devices = append(pod.Containers[0].Devices, &podresources.ContainerDevices{ResourceName: "nvidia.com/gpu", DeviceIds: []string{"GPU-bb"}, Topology: &podresources.TopologyInfo{
		Nodes: []*podresources.NUMANode{{ID: 1}, {ID: -1}, {ID: 1 << 40}, {ID: 1}},
	}})
	pod.Containers[0].DynamicResources = []*podresources.DynamicResource{{ClaimResources: []*podresources.ClaimResource{
		{CdiDevices: []*podresources.CDIDevice{{Name: "nvidia.com/gpu=0"}}},
	}}}
	all, unread, err := parseGrants(&podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{pod, bare("two")}}, false)
	if err != nil || len(unread) > 0 {
		t.Fatal(err)
	}
	want := map[podName]podGrants{
		{"shop", "one"}: {
			devices: map[string]lifecycle.DeviceGrant{"a": {CDI: []string{"nvidia.com/gpu=0"}, IDs: map[string][]string{"nvidia.com/gpu": {"GPU-aa", "GPU-bb"}}, NUMA: map[string][]int{"nvidia.com/gpu": {1}}}},
			static:  map[string]lifecycle.StaticGrant{"a": {}},
		},
		{"shop", "two"}: {devices: map[string]lifecycle.DeviceGrant{}, static: map[string]lifecycle.StaticGrant{}},
	}
	if d := cmp.Diff(want, all, cmp.AllowUnexported(podGrants{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	twice := gpuPod("one", "a", "GPU-aa")
	twice.Containers = append(twice.Containers, twice.Containers[0])
	for _, bad := range [][]*podresources.PodResources{
		{gpuPod("one", "a", "GPU-aa"), gpuPod("one", "a", "GPU-bb")},
		{gpuPod("", "a", "GPU-aa")}, {gpuPod("one", "", "GPU-aa")}, {gpuPod("one", "a", "")},
		{gpuPod("one", "a", strings.Repeat("x", maxName+1))}, {twice}, {nil},
	} {
		all, unread, err := parseGrants(&podresources.ListPodResourcesResponse{PodResources: append(bad, bare("sound"))}, true)
		if _, sound := all[podName{"shop", "sound"}]; err != nil || !sound || len(all) != 1 || len(unread) != 1 {
			t.Errorf("believed: %v, %v, %v", all, unread, err)
		}
	}
}

func bare(name string) *podresources.PodResources {
	return &podresources.PodResources{Namespace: "shop", Name: name}
}

// TestOneBadGrant: a pod about which the kubelet reports something unreadable keeps its known grants, in
// this agent and from the previous one; all others are reported.
func TestOneBadGrant(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "kubelet.sock")
	s := &resourcesServer{allocatable: []int64{0, 1, 2}}
	s.say(staticPod("one", []int64{1 << 40}), staticPod("two", []int64{2}))
	serveResources(t, socket, s)
	var mu sync.Mutex
	var saved []byte
	g := runGrants(t, GrantsOptions{
		Socket: socket, Wait: 5 * time.Second, Retry: time.Millisecond,
		Saved: []byte(`{"v":1,"pods":[{"uid":"u1","namespace":"shop","name":"one","containers":{"a":{"cpus":[1],"told":true}}}]}`),
		Save: func(data []byte) error {
			mu.Lock()
			defer mu.Unlock()
			saved = data
			return nil
		},
	})
	g.Await(t.Context(), shopPod("u1", "one"), shopPod("u2", "two"))
	if got := g.Known("u2").StaticGrantOf("a").CPUs; !slices.Equal(got, []int{2}) {
		t.Errorf("the other pod: %v", got)
	}
	if got := g.Known("u1").StaticGrantOf("a").CPUs; !slices.Equal(got, []int{1}) {
		t.Errorf("what an earlier agent knew: %v", got)
	}
	if st := g.State(); !st.Up || st.Err == nil || !strings.Contains(st.Err.Error(), "shop/one") {
		t.Errorf("%+v", st)
	}
	until(t, "it is kept", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(string(saved), `"u1"`) && strings.Contains(string(saved), `"u2"`)
	})
	s.say(staticPod("one", []int64{0}), staticPod("two", []int64{2}))
	until(t, "it is asked again", func() bool {
		return slices.Equal(g.Known("u1").StaticGrantOf("a").CPUs, []int{0}) && g.State().Err == nil
	})
	s.say(staticPod("one", []int64{-1}), staticPod("two", []int64{2}))
	g.Invalidate(shopPod("u2", "two"))
	until(t, "it cannot be read again", func() bool { return g.State().Err != nil })
	if got := g.Known("u1").StaticGrantOf("a").CPUs; !slices.Equal(got, []int{0}) {
		t.Errorf("what was known: %v", got)
	}
}
