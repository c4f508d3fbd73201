package cri_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/attachtest"
)

func cpus(text string) lifecycle.Value {
	return lifecycle.Value{Field: lifecycle.CPUSetCPUs, Text: text}
}

// unknown is a field that no version of the CRI has.
func unknown(m proto.Message, text string) {
	m.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 9999, protowire.BytesType), text))
}

func TestLifeOfAContainer(t *testing.T) {
	g := newRig(t)
	pod := g.runPod()
	p := g.h.found(t, lifecycle.RunPodSandbox, pod).Pod
	if p.Name != "web-0" || p.UID != "u-1" || p.Namespace != "shop" || p.RuntimeHandler != "kata" || p.CgroupParent != "/kubepods/podu-1" ||
		p.Labels["app"] != "web" || p.Annotations["k"] != "v" || p.Resources.CPU.Shares.V != 512 {
		t.Errorf("the pod was reported as %+v", p)
	}
	g.h.says(lifecycle.CreateContainer, lifecycle.Value{Field: lifecycle.Hugepages, Key: "2MB", Int: 4 << 20}, lifecycle.Value{Field: lifecycle.Hugepages, Key: "1GB"},
		lifecycle.Value{Field: lifecycle.OOMScoreAdj, Int: -7}, lifecycle.Value{Field: lifecycle.CDIDevice, Key: "nvidia.com/gpu=0"},
		lifecycle.Value{Field: lifecycle.DeviceNode, Key: "/dev/x", Device: &lifecycle.Device{Path: "/dev/x"}},
		lifecycle.Value{Field: lifecycle.MountPoint, Key: "/m", Mount: &lifecycle.Mount{Destination: "/m", Source: "/s", Type: "bind", Options: []string{"ro"}}},
		lifecycle.Value{Field: lifecycle.Unified, Key: "memory.low", Text: "1"}, cpus("2-3"), lifecycle.Value{Field: lifecycle.CPUQuota, Int: -1},
		lifecycle.Value{Field: lifecycle.Env, Key: "A", Text: "new"}, lifecycle.Value{Field: lifecycle.Env, Key: "C", Text: "3"},
		lifecycle.Value{Field: lifecycle.Annotation, Key: "record", Text: "r"})
	asked := config()
	asked.Linux.Resources.HugepageLimits = []*api.HugepageLimit{{PageSize: "2MB", Limit: 1}}
	unknown(asked, "from the future")
	unknown(asked.Linux.Resources, "too")
	id, err := g.create(pod, asked)
	if err != nil {
		t.Fatal(err)
	}
	want := proto.CloneOf(asked)
	want.Linux.Resources.CpusetCpus, want.Linux.Resources.CpuQuota = "2-3", -1
	want.Envs = []*api.KeyValue{{Key: "A", Value: []byte("new")}, {Key: "B", Value: []byte("2")}, {Key: "C", Value: []byte("3")}}
	want.Annotations = map[string]string{"record": "r"}
	want.Linux.Resources.HugepageLimits = []*api.HugepageLimit{{PageSize: "2MB", Limit: 4 << 20}, {PageSize: "1GB"}}
	want.Linux.Resources.OomScoreAdj, want.Linux.Resources.Unified = -7, map[string]string{"memory.low": "1"}
	want.CDIDevices = []*api.CDIDevice{{Name: "nvidia.com/gpu=0"}}
	want.Devices = []*api.Device{{ContainerPath: "/dev/x", HostPath: "/dev/x", Permissions: "rw"}}
	want.Mounts = []*api.Mount{{ContainerPath: "/m", HostPath: "/s", Readonly: true}}
	got := g.runtime.request("CreateContainer").(*api.CreateContainerRequest)
	if d := cmp.Diff(want, got.Config, protocmp.Transform()); d != "" {
		t.Errorf("the runtime was asked for something else:\n%s", d)
	}
	created := g.h.found(t, lifecycle.CreateContainer, "")
	if c := created.Container; c.Name != "app" || c.Resources.CPU.Quota.V != 20_000 || c.OOMScoreAdj.V != 5 || fmt.Sprint(c.Env, c.Args) != "[A=1 B=2] [sleep 1]" {
		t.Errorf("the container was reported as %+v", c)
	}
	named := g.h.found(t, lifecycle.PostCreateContainer, id)
	if named.Former != created.Container.ID || named.Container.CgroupsPath != "/kubepods/podu-1/"+id {
		t.Errorf("named: %+v, %+v", named, named.Container)
	}

	// Values decided between creation and start are sent before the start.
	g.h.on(lifecycle.StopContainer, func(lifecycle.Event) (conductor.Answer, error) {
		return conductor.Answer{Others: []conductor.Settings{{Container: id, Values: []lifecycle.Value{cpus("5")}}}}, nil
	})
	g.h.says(lifecycle.CreateContainer)
	other := g.run(pod)
	if _, err := g.client.StopContainer(g.ctx(), &api.StopContainerRequest{ContainerId: other}); err != nil {
		t.Fatal(err)
	}
	g.h.found(t, lifecycle.StopContainer, other)
	g.runtime.told()
	if _, err := g.client.StartContainer(g.ctx(), &api.StartContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(g.runtime.told()); got != "[UpdateContainerResources StartContainer]" {
		t.Errorf("the runtime saw %s", got)
	}
	pending := g.runtime.request("UpdateContainerResources").(*api.UpdateContainerResourcesRequest)
	if d := cmp.Diff(&api.UpdateContainerResourcesRequest{ContainerId: id, Linux: &api.LinuxContainerResources{CpusetCpus: "5"}}, pending, protocmp.Transform()); d != "" {
		t.Errorf("pending update:\n%s", d)
	}
	if c := g.h.found(t, lifecycle.StartContainer, id).Container; c.CgroupsPath != "/kubepods/podu-1/"+id {
		t.Errorf("its cgroup will be at %q", c.CgroupsPath)
	}
	g.h.found(t, lifecycle.PostStartContainer, id)

	for _, end := range []func() error{
		func() error {
			_, err := g.client.RemoveContainer(g.ctx(), &api.RemoveContainerRequest{ContainerId: id})
			return err
		},
		func() error {
			_, err := g.client.StopPodSandbox(g.ctx(), &api.StopPodSandboxRequest{PodSandboxId: pod})
			return err
		},
		func() error {
			_, err := g.client.RemovePodSandbox(g.ctx(), &api.RemovePodSandboxRequest{PodSandboxId: pod})
			return err
		},
	} {
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	g.h.found(t, lifecycle.RemoveContainer, id)
	g.h.found(t, lifecycle.StopPodSandbox, pod)
	g.h.found(t, lifecycle.RemovePodSandbox, pod)
}

// TestPlaceAskedOnce: the runtime is asked about the cgroup of one container, and the cgroup of the next is
// derived from it.
func TestPlaceAskedOnce(t *testing.T) {
	g := newRig(t)
	pod := g.runPod()
	for i := range 3 {
		id := g.run(pod)
		if at := g.h.found(t, lifecycle.PostCreateContainer, id).Container.CgroupsPath; at != "/kubepods/podu-1/"+id {
			t.Errorf("the cgroup of container %d is said to be at %q", i, at)
		}
		g.h.found(t, lifecycle.PostStartContainer, id)
		asks := 0
		g.runtime.set(func() { asks = g.runtime.ctrs[id].asks })
		if want := max(0, 1-i); asks != want {
			t.Errorf("the runtime was asked %d times for container %d, want %d", asks, i, want)
		}
	}
}

// TestUntouched: without a decision the runtime sees the kubelet's own message.
func TestUntouched(t *testing.T) {
	g := newRig(t)
	pod := g.runPod()
	asked := config()
	unknown(asked, "from the future")
	id, err := g.create(pod, asked)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(asked, g.runtime.request("CreateContainer").(*api.CreateContainerRequest).Config, protocmp.Transform()); d != "" {
		t.Error(d)
	}
	update := &api.UpdateContainerResourcesRequest{ContainerId: id, Linux: &api.LinuxContainerResources{CpuShares: 7}, Annotations: map[string]string{"a": "b"}}
	unknown(update, "x")
	if _, err := g.client.UpdateContainerResources(g.ctx(), update); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(update, g.runtime.request("UpdateContainerResources"), protocmp.Transform()); d != "" {
		t.Error(d)
	}
}

// TestPartialUpdate: fields that the kubelet leaves out stay left out.
func TestPartialUpdate(t *testing.T) {
	g := newRig(t)
	id := g.run(g.runPod())
	g.h.says(lifecycle.UpdateContainer, cpus("1"))
	update := &api.UpdateContainerResourcesRequest{ContainerId: id, Linux: &api.LinuxContainerResources{CpuShares: 7, CpusetCpus: "0-9"}}
	unknown(update.Linux, "x")
	if _, err := g.client.UpdateContainerResources(g.ctx(), update); err != nil {
		t.Fatal(err)
	}
	want := proto.CloneOf(update)
	want.Linux.CpusetCpus = "1"
	if d := cmp.Diff(want, g.runtime.request("UpdateContainerResources"), protocmp.Transform()); d != "" {
		t.Error(d)
	}
	if r := g.h.found(t, lifecycle.UpdateContainer, id).Requested; r.CPU.Shares.V != 7 || r.CPU.Quota.Set || r.Memory.Limit.Set {
		t.Errorf("asked for %+v", r)
	}
	g.h.found(t, lifecycle.PostUpdateContainer, id)
}

func TestRejected(t *testing.T) {
	g := newRig(t)
	pod := g.runPod()
	g.h.on(lifecycle.CreateContainer, func(lifecycle.Event) (conductor.Answer, error) {
		return conductor.Answer{}, &conductor.Rejection{Reason: "not here"}
	})
	g.runtime.told()
	_, err := g.create(pod, config())
	if st := status.Convert(err); st.Code() != codes.FailedPrecondition || st.Message() != "trimtab: not here" {
		t.Errorf("rejected with %v", err)
	}
	if got := g.runtime.told(); len(got) != 0 {
		t.Errorf("the runtime saw %v", got)
	}
}

// TestFault: after a panic the container is created, unless the failure policy is Fail.
func TestFault(t *testing.T) {
	g := newRig(t)
	pod := g.runPod()
	g.h.on(lifecycle.CreateContainer, func(lifecycle.Event) (conductor.Answer, error) { panic("oh") })
	if _, err := g.create(pod, config()); err != nil {
		t.Error(err)
	}
	g.stop()
	g.attach(true)
	if _, err := g.create(pod, config()); status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "failurePolicy") {
		t.Errorf("with the policy to fail: %v", err)
	}
}

// TestCreationFails: nothing is kept of a container that the runtime did not create.
func TestCreationFails(t *testing.T) {
	g := newRig(t)
	pod := g.runPod()
	g.runtime.set(func() { g.runtime.fail["CreateContainer"] = status.Error(codes.Unknown, "no image") })
	if _, err := g.create(pod, config()); !strings.Contains(fmt.Sprint(err), "no image") {
		t.Errorf("error %v", err)
	}
	first := g.h.found(t, lifecycle.CreateContainer, "").Container.ID
	g.h.found(t, lifecycle.RemoveContainer, first)

	g.runtime.set(func() {
		delete(g.runtime.fail, "CreateContainer")
		g.runtime.wait["CreateContainer"] = make(chan struct{})
	})
	g.runtime.told()
	ctx, cancel := context.WithCancel(g.ctx())
	done := make(chan error, 1)
	go func() {
		_, err := g.client.CreateContainer(ctx, &api.CreateContainerRequest{PodSandboxId: pod, Config: config()})
		done <- err
	}()
	attachtest.Until(t, "the runtime is asked", func() bool { return len(g.runtime.told()) > 0 })
	cancel()
	if err := <-done; status.Code(err) != codes.Canceled {
		t.Errorf("cancelled: %v", err)
	}
	attachtest.Until(t, "the given-up container is forgotten", func() bool {
		g.h.mu.Lock()
		defer g.h.mu.Unlock()
		n := 0
		for _, ev := range g.h.events {
			if ev.Kind == lifecycle.RemoveContainer {
				n++
			}
		}
		return n == 2
	})
}

// TestConfirmedOnly: a container whose end the runtime refused has not ended.
func TestConfirmedOnly(t *testing.T) {
	g := newRig(t)
	pod := g.runPod()
	id := g.run(pod)
	for _, method := range []string{"StopContainer", "RemoveContainer", "StopPodSandbox", "RemovePodSandbox"} {
		g.runtime.set(func() { g.runtime.fail[method] = status.Error(codes.Unknown, "busy") })
	}
	_, err1 := g.client.StopContainer(g.ctx(), &api.StopContainerRequest{ContainerId: id})
	_, err2 := g.client.RemoveContainer(g.ctx(), &api.RemoveContainerRequest{ContainerId: id})
	_, err3 := g.client.StopPodSandbox(g.ctx(), &api.StopPodSandboxRequest{PodSandboxId: pod})
	_, err4 := g.client.RemovePodSandbox(g.ctx(), &api.RemovePodSandboxRequest{PodSandboxId: pod})
	for _, err := range []error{err1, err2, err3, err4} {
		if !strings.Contains(fmt.Sprint(err), "busy") {
			t.Errorf("error %v", err)
		}
	}
	for _, k := range []lifecycle.Kind{lifecycle.StopContainer, lifecycle.RemoveContainer} {
		if _, told := g.h.look(k, id); told {
			t.Errorf("%v was reported, although the runtime refused", k)
		}
	}
	for _, k := range []lifecycle.Kind{lifecycle.StopPodSandbox, lifecycle.RemovePodSandbox} {
		if _, told := g.h.look(k, pod); told {
			t.Errorf("%v was reported, although the runtime refused", k)
		}
	}
}

// TestEndsByItself: a container that exits or is removed is noticed.
func TestEndsByItself(t *testing.T) {
	g := newRig(t)
	pod := g.runPod()
	exits, goes := g.run(pod), g.run(pod)
	if err := g.runtime.state(exits, api.ContainerState_CONTAINER_EXITED); err != nil {
		t.Fatal(err)
	}
	g.runtime.set(func() { delete(g.runtime.ctrs, goes) })
	g.h.found(t, lifecycle.StopContainer, exits)
	g.h.found(t, lifecycle.RemoveContainer, goes)
	g.runtime.set(func() { delete(g.runtime.pods, pod) })
	g.h.found(t, lifecycle.RemovePodSandbox, pod)
}

// TestAdoptsAfterAStepBack: a pod and its container that were created without the proxy are adopted soon,
// although the wall clock was set back by an hour after their creation.
func TestAdoptsAfterAStepBack(t *testing.T) {
	g := newRig(t)
	ahead := time.Now().Add(time.Hour).UnixNano()
	p, c := podConfig(), &api.ContainerConfig{Metadata: &api.ContainerMetadata{Name: "app"}}
	g.runtime.set(func() {
		g.runtime.ctrs["ctr-x"] = &fakeContainer{asked: c, listed: &api.Container{
			Id: "ctr-x", PodSandboxId: "pod-x", Metadata: c.Metadata, State: api.ContainerState_CONTAINER_RUNNING, CreatedAt: ahead,
		}}
		g.runtime.pods["pod-x"] = &api.PodSandbox{Id: "pod-x", Metadata: p.Metadata, Labels: p.Labels, CreatedAt: ahead}
	})
	g.h.found(t, lifecycle.RunPodSandbox, "pod-x")
	g.h.found(t, lifecycle.StartContainer, "ctr-x")
}

// TestRebuilt: running containers are reported before the socket opens.
func TestRebuilt(t *testing.T) {
	g := newRig(t)
	pod := g.runPod()
	g.h.says(lifecycle.CreateContainer, cpus("3"), lifecycle.Value{Field: lifecycle.Annotation, Key: "record", Text: "r"})
	id := g.run(pod)
	g.stop()
	g.h = newHandler()
	g.attach(false)
	ev := g.h.found(t, lifecycle.Synchronize, "")
	if len(ev.Pods) != 1 || ev.Pods[0].CgroupParent != "/kubepods/"+pod || ev.Pods[0].Name != "web-0" {
		t.Errorf("pods: %+v", ev.Pods)
	}
	if len(ev.Containers) != 1 {
		t.Fatalf("containers: %+v", ev.Containers)
	}
	if c := ev.Containers[0]; c.ID != id || c.State != lifecycle.StateRunning || c.Annotations["record"] != "r" || c.Resources.CPU.CPUs != "3" ||
		c.Resources.CPU.Quota.V != 5000 || c.OOMScoreAdj.V != 3 || c.CgroupsPath == "" || c.PodID != pod {
		t.Errorf("container: %+v", c)
	}
	if _, err := g.client.StopContainer(g.ctx(), &api.StopContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	g.h.found(t, lifecycle.StopContainer, id)
}

// TestPassing: while the running containers are unknown, every call passes, and the attachment tries again
// to synchronise.
func TestPassing(t *testing.T) {
	g := newRig(t)
	g.stop()
	g.runtime.set(func() { g.runtime.fail["ListContainers"] = status.Error(codes.Unknown, "not yet") })
	g.h = newHandler()
	g.attach(false)
	pod := g.runPod()
	id, err := g.create(pod, config())
	if err != nil {
		t.Fatal(err)
	}
	if state, _, err := g.a.Status(); state != "passing all calls unchanged" || !strings.Contains(fmt.Sprint(err), "not yet") {
		t.Errorf("state %s, %v", state, err)
	}
	if _, told := g.h.look(lifecycle.CreateContainer, ""); told {
		t.Error("a call was held")
	}
	g.runtime.set(func() { delete(g.runtime.fail, "ListContainers") })
	if ev := g.h.found(t, lifecycle.Synchronize, ""); len(ev.Containers) != 1 || ev.Containers[0].ID != id {
		t.Errorf("containers %+v", ev.Containers)
	}
	attachtest.Until(t, "calls are held", func() bool {
		g.run(pod)
		_, told := g.h.look(lifecycle.CreateContainer, "")
		return told
	})

	g.stop()
	g.runtime.set(func() { g.runtime.fail["ListContainers"] = status.Error(codes.Unknown, "not yet") })
	g.attach(true)
	if _, err := g.create(pod, config()); status.Code(err) != codes.Unavailable {
		t.Errorf("with the policy to fail: %v", err)
	}
}

// TestRuntimeRestarts: while the runtime is down, calls fail as they would without the proxy; afterwards they
// work again, and no state is lost.
func TestRuntimeRestarts(t *testing.T) {
	g := newRig(t)
	id := g.run(g.runPod())
	g.runtime.stop()
	if _, err := g.client.Version(g.ctx(), &api.VersionRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("while the runtime is away: %v", err)
	}
	attachtest.Until(t, "the loss is noticed", func() bool { s, _, _ := g.a.Status(); return s == "connection lost" })
	if _, err := g.a.Update(g.ctx(), nil); err == nil {
		t.Error("update without a runtime")
	}
	g.runtime.serve(t)
	attachtest.Until(t, "the return is noticed", func() bool { s, _, _ := g.a.Status(); return s == "synchronised" })
	attachtest.Until(t, "calls work", func() bool {
		_, err := g.client.StopContainer(g.ctx(), &api.StopContainerRequest{ContainerId: id})
		return err == nil
	})
	g.h.found(t, lifecycle.StopContainer, id)
}

// TestOwnerWaits: a container that owns CPUs does not start while another container that had those CPUs is
// being started.
func TestOwnerWaits(t *testing.T) {
	g := newRig(t)
	pod := g.runPod()
	first, err := g.create(pod, config())
	if err != nil {
		t.Fatal(err)
	}
	owner, err := g.create(pod, config())
	if err != nil {
		t.Fatal(err)
	}
	g.h.on(lifecycle.StartContainer, func(ev lifecycle.Event) (conductor.Answer, error) {
		return conductor.Answer{OwnsCPUs: ev.Container.ID == owner}, nil
	})
	release := make(chan struct{})
	g.runtime.set(func() { g.runtime.wait["StartContainer"] = release })
	g.runtime.told()
	done := make(chan error, 2)
	start := func(id string) {
		_, err := g.client.StartContainer(g.ctx(), &api.StartContainerRequest{ContainerId: id})
		done <- err
	}
	go start(first)
	attachtest.Until(t, "the first is starting", func() bool { return len(g.runtime.told()) == 1 })
	go start(owner)
	g.h.found(t, lifecycle.StartContainer, owner)
	time.Sleep(50 * time.Millisecond) // no event can be awaited here, because nothing must happen
	if got := g.runtime.told(); len(got) != 0 {
		t.Errorf("the owner starts beside the first: %v", got)
	}
	close(release)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	g.h.mu.Lock()
	defer g.h.mu.Unlock()
	settled := false
	for _, ev := range g.h.events {
		settled = settled || ev.Kind == lifecycle.PostStartContainer && ev.Container.ID == first
	}
	if !settled {
		t.Error("the owner started before the first was settled")
	}
}

func TestUpdate(t *testing.T) {
	g := newRig(t)
	id := g.run(g.runPod())
	failed, err := g.a.Update(g.ctx(), []conductor.Settings{{Container: id, Values: []lifecycle.Value{cpus("4"), {Field: lifecycle.MemoryLimit, Int: 1 << 26}}}})
	if err != nil || len(failed) != 0 {
		t.Errorf("%v, %v", failed, err)
	}
	want := &api.UpdateContainerResourcesRequest{ContainerId: id, Linux: &api.LinuxContainerResources{CpusetCpus: "4", MemoryLimitInBytes: 1 << 26}}
	if d := cmp.Diff(want, g.runtime.request("UpdateContainerResources"), protocmp.Transform()); d != "" {
		t.Error(d)
	}
	g.runtime.set(func() { g.runtime.fail["UpdateContainerResources"] = status.Error(codes.NotFound, "gone") })
	if failed, err := g.a.Update(g.ctx(), []conductor.Settings{{Container: id, Values: []lifecycle.Value{cpus("4")}}}); err != nil || len(failed) != 1 {
		t.Errorf("%v, %v", failed, err)
	}
}

// TestSockets: a stale socket is replaced, a socket that is served is an error, and other files are not
// changed.
func TestSockets(t *testing.T) {
	g := newRig(t)
	g.stop()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: g.socket(), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	served := g.again()
	if err := served.Run(g.ctx()); !strings.Contains(fmt.Sprint(err), "another process serves") {
		t.Errorf("a socket of another process: %v", err)
	}
	_ = l.Close()
	g.attach(false)
	g.runPod()
	g.stop()
	_ = os.Remove(g.socket())
	if err := os.WriteFile(g.socket(), []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := g.again().Run(g.ctx()); !strings.Contains(fmt.Sprint(err), "is not a socket") {
		t.Errorf("a file: %v", err)
	}
	if text, _ := os.ReadFile(g.socket()); string(text) != "precious" {
		t.Error("a file was lost")
	}
}

// TestLargeList compares a list of 5,000 containers, which is above gRPC's default of 4 MiB, and a stream
// of events, with a direct connection.
func TestLargeList(t *testing.T) {
	g := newRig(t)
	long := strings.Repeat("x", 900)
	g.runtime.set(func() {
		for i := range 5000 {
			id := fmt.Sprintf("%064x", i)
			g.runtime.ctrs[id] = &fakeContainer{listed: &api.Container{
				Id: id, PodSandboxId: "p", State: api.ContainerState_CONTAINER_EXITED, Metadata: &api.ContainerMetadata{Name: "app"},
				Annotations: map[string]string{"long": long},
			}}
		}
	})
	var lists [2]*api.ListContainersResponse
	var events [2]string
	for i, socket := range []string{g.runtime.path, g.socket()} {
		conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		client := api.NewRuntimeServiceClient(conn)
		if lists[i], err = client.ListContainers(g.ctx(), &api.ListContainersRequest{}); err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(lists[i].Containers, func(a, b *api.Container) int { return strings.Compare(a.Id, b.Id) })
		stream, err := client.GetContainerEvents(g.ctx(), &api.GetEventsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for {
			ev, err := stream.Recv()
			if err != nil {
				events[i] += err.Error()
				break
			}
			events[i] += ev.ContainerId + " "
		}
	}
	if n := proto.Size(lists[0]); n < 4<<20 || !proto.Equal(lists[0], lists[1]) {
		t.Errorf("lists of %d and %d bytes differ", n, proto.Size(lists[1]))
	}
	if !strings.HasPrefix(events[0], "c0 c1 ") || events[0] != events[1] {
		t.Errorf("events: direct %q, proxied %q", events[0], events[1])
	}
}
