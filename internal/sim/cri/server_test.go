package cri_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/cri"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a runtime like a release of containerd, and returns its kernel and a client.
func serve(t *testing.T, version string) (*sim.Runtime, *kernel.Cgroups, v1.RuntimeServiceClient) {
	t.Helper()
	machine, err := describe.Parse("4c")
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := kernel.NewCgroups(cgroup.V1, "0-3", "0")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r, err := sim.NewRuntime(sim.Options{
		Machine: machine, Kernel: kernel, Version: cgroup.V1, Driver: sim.Cgroupfs, Socket: filepath.Join(dir, "n"), Seed: t.Name(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	f, err := cri.Serve(r, cri.Options{Socket: filepath.Join(dir, "c"), Version: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, "c"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return r, kernel, v1.NewRuntimeServiceClient(conn)
}

// run runs a pod with a container that is created and not started.
func run(t *testing.T, r *sim.Runtime, c v1.RuntimeServiceClient) (pod, ctr, dir string) {
	t.Helper()
	parent := r.PodDir("Burstable", "u")
	p, err := c.RunPodSandbox(t.Context(), &v1.RunPodSandboxRequest{Config: &v1.PodSandboxConfig{
		Metadata: &v1.PodSandboxMetadata{Namespace: "d", Name: "p", Uid: "u"}, Labels: map[string]string{"l": "1"},
		Linux: &v1.LinuxPodSandboxConfig{CgroupParent: "/" + parent, Resources: &v1.LinuxContainerResources{CpuShares: 512}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	k, err := c.CreateContainer(t.Context(), &v1.CreateContainerRequest{PodSandboxId: p.PodSandboxId, Config: &v1.ContainerConfig{
		Metadata: &v1.ContainerMetadata{Name: "a"}, Envs: []*v1.KeyValue{{Key: "A", Value: []byte("b")}},
		Linux: &v1.LinuxContainerConfig{Resources: &v1.LinuxContainerResources{CpuShares: 300, CpuQuota: 50_000, CpuPeriod: 100_000}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return p.PodSandboxId, k.ContainerId, parent + "/" + k.ContainerId
}

// TestContainerLifecycle checks what attachments rely on: a start makes the cgroup, an update keeps the fields that it
// does not set, and a removed container is not found.
func TestContainerLifecycle(t *testing.T) {
	r, kernel, c := serve(t, "")
	pod, ctr, dir := run(t, r, c)
	shares := func() string {
		text, err := kernel.ReadFile("cpu/" + dir + "/cpu.shares")
		if err != nil {
			return "none"
		}
		return string(text)
	}
	if got := shares(); got != "none" {
		t.Errorf("a container that was only created has a cgroup, with shares %s", got)
	}
	if _, err := c.StartContainer(t.Context(), &v1.StartContainerRequest{ContainerId: ctr}); err != nil {
		t.Fatal(err)
	}
	if got := shares(); got != "300\n" {
		t.Errorf("shares are %q", got)
	}
	update := &v1.UpdateContainerResourcesRequest{ContainerId: ctr, Linux: &v1.LinuxContainerResources{Unified: map[string]string{"cpu.idle": "1"}}}
	if _, err := c.UpdateContainerResources(t.Context(), update); err == nil {
		t.Error("a file of version 2 was taken on version 1, which runc refuses")
	}
	update.Linux = &v1.LinuxContainerResources{CpuShares: 400}
	if _, err := c.UpdateContainerResources(t.Context(), update); err != nil {
		t.Fatal(err)
	}
	st, err := c.ContainerStatus(t.Context(), &v1.ContainerStatusRequest{ContainerId: ctr, Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	var info struct {
		SandboxID   string     `json:"sandboxID"`
		PID         int        `json:"pid"`
		RuntimeSpec specs.Spec `json:"runtimeSpec"`
	}
	if err := json.Unmarshal([]byte(st.Info["info"]), &info); err != nil {
		t.Fatal(err)
	}
	cpu := info.RuntimeSpec.Linux.Resources.CPU
	if info.SandboxID != pod || info.PID == 0 || *cpu.Shares != 400 || *cpu.Quota != 50_000 || !slices.Contains(info.RuntimeSpec.Process.Env, "A=b") {
		t.Errorf("verbose status is %s", st.Info["info"])
	}
	if l := st.Status.Resources.GetLinux(); st.Status.State != v1.ContainerState_CONTAINER_RUNNING || l.GetCpuShares() != 400 || shares() != "400\n" {
		t.Errorf("status is %v, the kernel has shares %s", st.Status, shares())
	}
	if _, err := c.RemovePodSandbox(t.Context(), &v1.RemovePodSandboxRequest{PodSandboxId: pod}); err != nil {
		t.Fatal(err)
	}
	_, err = c.ContainerStatus(t.Context(), &v1.ContainerStatusRequest{ContainerId: ctr})
	if status.Code(err) != codes.NotFound || shares() != "none" {
		t.Errorf("after the pod's removal: %v, shares %s", err, shares())
	}
}

// TestLists checks the filters of lists, which are containerd's.
func TestLists(t *testing.T) {
	r, _, c := serve(t, "")
	pod, ctr, _ := run(t, r, c)
	for name, tt := range map[string]struct {
		filter *v1.ContainerFilter
		want   int
	}{
		"all":         {nil, 1},
		"by id":       {&v1.ContainerFilter{Id: ctr}, 1},
		"another id":  {&v1.ContainerFilter{Id: pod}, 0},
		"by pod":      {&v1.ContainerFilter{PodSandboxId: pod}, 1},
		"other state": {&v1.ContainerFilter{State: &v1.ContainerStateValue{State: v1.ContainerState_CONTAINER_RUNNING}}, 0},
	} {
		l, err := c.ListContainers(t.Context(), &v1.ListContainersRequest{Filter: tt.filter})
		if err != nil || len(l.Containers) != tt.want {
			t.Errorf("%s: %v, %v", name, l, err)
		}
	}
	ready := &v1.PodSandboxFilter{State: &v1.PodSandboxStateValue{State: v1.PodSandboxState_SANDBOX_READY}}
	for _, want := range []int{1, 0} {
		l, err := c.ListPodSandbox(t.Context(), &v1.ListPodSandboxRequest{Filter: ready})
		if err != nil || len(l.Items) != want {
			t.Errorf("%d ready pods: %v, %v", want, l, err)
		}
		if _, err := c.StopPodSandbox(t.Context(), &v1.StopPodSandboxRequest{PodSandboxId: pod}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEvents: all listeners get events, from containerd 1.7 on.
func TestEvents(t *testing.T) {
	r, _, c := serve(t, "")
	stream, err := c.GetContainerEvents(t.Context(), &v1.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	// The server does not report when it has registered the listener, so the test runs pods until it gets an event.
	heard := make(chan *v1.ContainerEventResponse, 16)
	go func() {
		defer close(heard)
		for {
			e, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case heard <- e:
			case <-stream.Context().Done(): // the test has all events that it needs
				return
			}
		}
	}()
	// the event may be of an earlier pod
	podOf := map[string]string{}
	for {
		pod, ctr, _ := run(t, r, c)
		podOf[pod], podOf[ctr] = pod, pod
		select {
		case e, open := <-heard:
			if !open {
				t.Fatal("the stream ended")
			}
			if want := podOf[e.ContainerId]; want == "" || e.PodSandboxStatus.GetId() != want {
				t.Errorf("heard %v", e)
			}
			return
		default:
		}
		if _, err := c.RemovePodSandbox(t.Context(), &v1.RemovePodSandboxRequest{PodSandboxId: pod}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestContainerd16: this release has no events, and no resources in a status that is not verbose.
func TestContainerd16(t *testing.T) {
	r, _, c := serve(t, "1.6.20~ds1")
	_, ctr, _ := run(t, r, c)
	stream, err := c.GetContainerEvents(t.Context(), &v1.GetEventsRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("events of containerd 1.6: %v", err)
	}
	st, err := c.ContainerStatus(t.Context(), &v1.ContainerStatusRequest{ContainerId: ctr})
	if err != nil || st.Status.Resources != nil {
		t.Errorf("%v, %v", st, err)
	}
}

// TestForeignCgroupRefused: a pod is refused if its cgroup is not where a kubelet puts pods.
func TestForeignCgroupRefused(t *testing.T) {
	_, _, c := serve(t, "")
	_, err := c.RunPodSandbox(t.Context(), &v1.RunPodSandboxRequest{Config: &v1.PodSandboxConfig{
		Metadata: &v1.PodSandboxMetadata{Namespace: "d", Name: "p", Uid: "u"}, Linux: &v1.LinuxPodSandboxConfig{CgroupParent: "/elsewhere"},
	}})
	if status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
}
