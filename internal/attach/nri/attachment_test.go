package nri

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/attachtest"
)

// attached returns an attachment and its runtime, connected to each other.
func attached(t *testing.T, r *recorder, u *upstream) (*Attachment, *upstream) {
	t.Helper()
	sock := socketPath(t)
	boot(t, sock, u)
	a := run(t, Options{Socket: sock, Handler: r})
	attachtest.Until(t, "synchronised", inState(a, connect.StateSynchronised))
	attachtest.Until(t, "registered", u.registered)
	return a, u
}

func aPod() *api.PodSandbox {
	return &api.PodSandbox{Id: "p1", Uid: "u1", Name: "web", Namespace: "shop"}
}

func aContainer() *api.Container {
	return &api.Container{Id: "c1", PodSandboxId: "p1", Name: "app", Env: []string{"PATH=/bin", "NEW=old"}}
}

func answering(ans conductor.Answer) func(context.Context, lifecycle.Event) (conductor.Answer, error) {
	return func(context.Context, lifecycle.Event) (conductor.Answer, error) { return ans, nil }
}

func TestRegisterAndSynchronise(t *testing.T) {
	r := &recorder{answer: answering(conductor.Answer{Others: []conductor.Settings{{Container: "c1", Values: everything()}}})}
	a, u := attached(t, r, &upstream{pods: []*api.PodSandbox{aPod(), nil}, ctrs: []*api.Container{aContainer()}})
	ev, _ := r.last(lifecycle.Synchronize)
	want := lifecycle.Event{
		Pods:       []*lifecycle.Pod{{ID: "p1", UID: "u1", Name: "web", Namespace: "shop"}, {}},
		Containers: []*lifecycle.Container{{ID: "c1", PodID: "p1", Name: "app", Env: []string{"PATH=/bin", "NEW=old"}}},
	}
	if d := cmp.Diff(want, ev); d != "" {
		t.Error(d)
	}
	if len(u.synced) != 0 {
		t.Errorf("synchronise was answered with updates: %v", u.synced)
	}
	if _, rt, err := a.Status(); !strings.HasPrefix(rt, "containerd v2.4.2 (NRI ") || err != nil || rt != a.About() {
		t.Errorf("status says %q, %v", rt, err)
	}
	attachtest.Until(t, "the handler is attached", func() bool { n, _ := r.counts(); return n == 1 })
	if r.runtime != conductor.Runtime(a) {
		t.Error("handler got another runtime")
	}
}

func TestCreateCarriesEverything(t *testing.T) {
	r := &recorder{}
	r.answer = func(_ context.Context, ev lifecycle.Event) (conductor.Answer, error) {
		if ev.Kind != lifecycle.CreateContainer {
			return conductor.Answer{}, nil
		}
		return conductor.Answer{
			Values: everything(),
			Others: []conductor.Settings{
				{Container: "c0", Values: everything()[:1]},
				{Container: "c1", Values: everything()[:1]}, // an update of the container itself, which runtimes refuse
				{Container: "", Values: everything()[:1]},
				{Container: "c0", Values: everything()[3:4]},
			},
		}, nil
	}
	_, u := attached(t, r, &upstream{})
	rsp, err := u.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: aPod(), Container: aContainer()})
	if err != nil {
		t.Fatal(err)
	}
	want := wantAdjustment()
	want.Linux.MemoryPolicy = nil // the library infers NRI 0.11 for a release that it does not know; 0.12 supports it
	opts := cmp.Options{protocmp.Transform(), protocmp.IgnoreEmptyMessages()}
	if d := cmp.Diff(want, rsp.Adjust, opts); d != "" {
		t.Error(d)
	}
	others := []*api.ContainerUpdate{{ContainerId: "c0", IgnoreFailure: true, Linux: &api.LinuxContainerUpdate{
		Resources: &api.LinuxResources{Cpu: &api.LinuxCPU{Shares: api.UInt64(512), Cpus: "2-3"}},
	}}}
	if d := cmp.Diff(others, rsp.Update, opts); d != "" {
		t.Error(d)
	}
	ev, _ := r.last(lifecycle.CreateContainer)
	if ev.Pod.UID != "u1" || ev.Container.Name != "app" {
		t.Errorf("event %+v", ev)
	}
}

// TestNothingDecided: the container is what it would be without the agent (I5).
func TestNothingDecided(t *testing.T) {
	s := &session{identities: newIdentities(), eventBeforeSync: newSignal(), a: New(Options{Handler: &recorder{}}), requests: requests{idle: newSignal()}}
	a, up, err := s.CreateContainer(t.Context(), aPod(), aContainer())
	if a != nil || up != nil || err != nil {
		t.Errorf("create: %v, %v, %v", a, up, err)
	}
	if up, err := s.UpdateContainer(t.Context(), aPod(), aContainer(), nil); up != nil || err != nil {
		t.Errorf("update: %v, %v", up, err)
	}
}

func TestUpdateIsReasserted(t *testing.T) {
	r := &recorder{answer: answering(conductor.Answer{
		Values: everything(), Others: []conductor.Settings{{Container: "c0", Values: everything()[3:4]}},
	})}
	_, u := attached(t, r, &upstream{})
	rsp, err := u.UpdateContainer(t.Context(), &api.UpdateContainerRequest{
		Pod: aPod(), Container: aContainer(),
		LinuxResources: &api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: "0-7"}, Memory: &api.LinuxMemory{Swap: api.Int64(7)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	res := wantResources()
	res.Memory.Swap = api.Int64(7) // fields for which the agent has no value stay as requested
	want := []*api.ContainerUpdate{
		{ContainerId: "c0", IgnoreFailure: true, Linux: &api.LinuxContainerUpdate{
			Resources: &api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: "2-3"}},
		}},
		{ContainerId: "c1", IgnoreFailure: true, Linux: &api.LinuxContainerUpdate{Resources: res}},
	}
	if d := cmp.Diff(want, rsp.Update, protocmp.Transform(), protocmp.IgnoreEmptyMessages()); d != "" {
		t.Error(d)
	}
	ev, _ := r.last(lifecycle.UpdateContainer)
	if ev.Requested == nil || ev.Requested.CPU.CPUs != "0-7" || ev.Requested.Memory.Swap != lifecycle.Some[int64](7) {
		t.Errorf("requested %+v", ev.Requested)
	}
}

// TestAllEvents: each step reaches the handler under its own name.
func TestAllEvents(t *testing.T) {
	r := &recorder{}
	_, u := attached(t, r, &upstream{})
	p, c, ctx := aPod(), aContainer(), t.Context()
	steps := map[lifecycle.Kind]func() error{
		lifecycle.RunPodSandbox: func() error { return u.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: p}) },
		lifecycle.UpdatePodSandbox: func() error {
			_, err := u.UpdatePodSandbox(ctx, &api.UpdatePodSandboxRequest{Pod: p,
				OverheadLinuxResources: &api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: "1"}},
				LinuxResources:         &api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: "2"}},
			})
			return err
		},
		lifecycle.StopPodSandbox:   func() error { return u.StopPodSandbox(ctx, &api.StopPodSandboxRequest{Pod: p}) },
		lifecycle.RemovePodSandbox: func() error { return u.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{Pod: p}) },
		lifecycle.StartContainer: func() error {
			return u.StartContainer(ctx, &api.StartContainerRequest{Pod: p, Container: c})
		},
		lifecycle.StopContainer: func() error {
			_, err := u.StopContainer(ctx, &api.StopContainerRequest{Pod: p, Container: c})
			return err
		},
		lifecycle.RemoveContainer: func() error {
			return u.RemoveContainer(ctx, &api.RemoveContainerRequest{Pod: p, Container: c})
		},
	}
	for kind, step := range steps {
		for range 2 { // duplicate events are not an error
			if err := step(); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
		}
		ev, ok := r.last(kind)
		if !ok || ev.Pod.UID != "u1" || (ev.Container != nil) != strings.HasSuffix(kind.String(), "Container") {
			t.Errorf("%s: %v %+v", kind, ok, ev)
		}
	}
	ev, _ := r.last(lifecycle.UpdatePodSandbox)
	if ev.Overhead.CPU.CPUs != "1" || ev.Requested.CPU.CPUs != "2" {
		t.Errorf("overhead %+v, requested %+v", ev.Overhead, ev.Requested)
	}
}

// TestOddMessages: messages with missing fields cause no error.
func TestOddMessages(t *testing.T) {
	r := &recorder{}
	_, u := attached(t, r, &upstream{})
	ctx := t.Context()
	if err := u.RunPodSandbox(ctx, &api.RunPodSandboxRequest{}); err != nil {
		t.Error(err)
	}
	if err := u.StartContainer(ctx, &api.StartContainerRequest{Pod: aPod()}); err != nil {
		t.Error(err)
	}
	if _, ok := r.last(lifecycle.RunPodSandbox); ok {
		t.Error("an event without pod reached the handler")
	}
	if _, err := u.CreateContainer(ctx, &api.CreateContainerRequest{Container: &api.Container{PodSandboxId: "p9"}}); err != nil {
		t.Error(err)
	}
	if ev, _ := r.last(lifecycle.CreateContainer); ev.Pod == nil || ev.Pod.ID != "p9" {
		t.Errorf("no stand-in for the pod: %+v", ev)
	}
}

func TestRejectionPanicAndFault(t *testing.T) {
	var how func() error
	r := &recorder{answer: func(_ context.Context, ev lifecycle.Event) (conductor.Answer, error) {
		if ev.Kind == lifecycle.Synchronize {
			panic("synchronise")
		}
		return conductor.Answer{Values: everything()}, how()
	}}
	a, u := attached(t, r, &upstream{})
	create := func() (*api.CreateContainerResponse, error) {
		return u.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: aPod(), Container: aContainer()})
	}
	how = func() error { return &conductor.Rejection{Reason: "not authorised"} }
	if _, err := create(); err == nil || !strings.Contains(err.Error(), "trimtab: not authorised") {
		t.Errorf("rejection came out as %v", err)
	}
	for _, how = range []func() error{func() error { panic("boom") }, func() error { return errors.New("fault") }} {
		rsp, err := create()
		if err != nil {
			t.Errorf("a fault of ours stopped a pod: %v", err)
		}
		if adj := rsp.GetAdjust(); len(adj.GetEnv()) != 0 || adj.GetLinux().GetResources().GetCpu().GetCpus() != "" {
			t.Errorf("a fault of ours changed a container: %v", adj)
		}
	}
	how = func() error { return nil }
	if rsp, err := create(); err != nil || len(rsp.Adjust.Env) != 1 || !inState(a, connect.StateSynchronised)() {
		t.Errorf("did not go on: %v, %v", rsp, err)
	}
}

func TestUnsolicitedUpdate(t *testing.T) {
	got := make(chan []*api.ContainerUpdate, 1)
	r := &recorder{}
	a, _ := attached(t, r, &upstream{update: func(up []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) {
		got <- up
		return up[1:], nil
	}})
	failed, err := a.Update(t.Context(), []conductor.Settings{
		{Container: "c1", Values: everything()}, {Container: "c2", Values: everything()[:1]}, {Container: "c3"},
	})
	if err != nil || !slices.Equal(failed, []string{"c2"}) {
		t.Errorf("failed %v, %v", failed, err)
	}
	want := []*api.ContainerUpdate{
		{ContainerId: "c1", Linux: &api.LinuxContainerUpdate{Resources: wantResources()}},
		{ContainerId: "c2", Linux: &api.LinuxContainerUpdate{Resources: &api.LinuxResources{Cpu: &api.LinuxCPU{Shares: api.UInt64(512)}}}},
	}
	if d := cmp.Diff(want, <-got, protocmp.Transform()); d != "" {
		t.Error(d)
	}
	if failed, err := a.Update(t.Context(), nil); failed != nil || err != nil {
		t.Errorf("nothing to update: %v, %v", failed, err)
	}
}

func TestUpdateRefused(t *testing.T) {
	var inside error
	r := &recorder{}
	what := []conductor.Settings{{Container: "c1", Values: everything()}}
	if _, err := New(Options{}).Update(t.Context(), what); !errors.Is(err, ErrDetached) {
		t.Errorf("detached: %v", err)
	}
	r.answer = func(ctx context.Context, ev lifecycle.Event) (conductor.Answer, error) {
		if ev.Kind == lifecycle.StartContainer {
			_, inside = r.runtime.Update(ctx, what)
		}
		return conductor.Answer{}, nil
	}
	_, u := attached(t, r, &upstream{update: func([]*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, errors.New("broken") }})
	attachtest.Until(t, "the handler is attached", func() bool { n, _ := r.counts(); return n == 1 })
	if err := u.StartContainer(t.Context(), &api.StartContainerRequest{Pod: aPod(), Container: aContainer()}); err != nil {
		t.Error(err)
	}
	if !errors.Is(inside, ErrInHandler) {
		t.Errorf("inside a handler: %v", inside)
	}
	if _, err := r.runtime.Update(t.Context(), what); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("runtime's error became %v", err)
	}
}
