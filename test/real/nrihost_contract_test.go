package real_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/real"
)

// validator is an NRI plugin that checks what others set, and is asked nothing else.
type validator struct {
	check func(*api.ValidateContainerAdjustmentRequest) error
}

func (v validator) ValidateContainerAdjustment(_ context.Context, r *api.ValidateContainerAdjustmentRequest) error {
	return v.check(r)
}

// runStub connects any plugin, until the test ends. The end of the connection is no failure.
func runStub(t testing.TB, plugin any, socket, name, index string) {
	t.Helper()
	s, err := stub.New(plugin, stub.WithPluginName(name), stub.WithPluginIdx(index), stub.WithSocketPath(socket), stub.WithOnClose(func() {}))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
}

// TestHostedValidation has a plugin validate what another sets: it is shown the container before any plugin changed it,
// the adjustment of all, who set what, and who was asked. What it rejects, or fails to answer about, is not created.
func TestHostedValidation(t *testing.T) {
	t.Parallel()
	onBothSides(t, func(t *testing.T, _ string, c *real.Containerd, socket string) {
		t.Helper()
		setter := newPlugin(t)
		setter.create = func(_ *api.PodSandbox, _ *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
			a := &api.ContainerAdjustment{}
			a.AddEnv("SET", "1")
			a.SetLinuxCPUShares(321)
			return a, nil, nil
		}
		setter.connect(socket, "setter", "10")
		var mu sync.Mutex
		seen := map[string]*api.ValidateContainerAdjustmentRequest{}
		hang := make(chan struct{})
		runStub(t, validator{check: func(r *api.ValidateContainerAdjustmentRequest) error {
			mu.Lock()
			seen[r.GetContainer().GetName()] = r
			mu.Unlock()
			switch r.GetContainer().GetName() {
			case "rejected":
				return errors.New("not on this node")
			case "hangs":
				<-hang
			}
			return nil
		}}, socket, "checks", "90")
		defer close(hang)
		pod := c.RunPod(plain("p", ""))
		var id real.ContainerID
		real.Eventually(t, patiently, func() error { // until the validator is synchronised
			id = c.RunContainer(pod, real.ContainerSpec{Name: "main"})
			mu.Lock()
			defer mu.Unlock()
			if seen["main"] == nil {
				c.RemoveContainer(id)
				return errors.New("the validator was not asked")
			}
			return nil
		})
		r := seen["main"]
		owner, owned := r.GetOwners().GetOwners()[string(id)].GetCompound()[int32(api.Field_Env)].GetOwners()["SET"], r.GetOwners().GetOwners()[string(id)].GetSimple()[int32(api.Field_CPUShares)]
		same(t, "owners of the variable and the shares", owner+" "+owned, "10-setter 10-setter")
		if slices.Contains(r.GetContainer().GetEnv(), "SET=1") || len(r.GetAdjust().GetEnv()) != 1 || r.GetContainer().GetId() != string(id) {
			t.Errorf("the validator is shown %v and %v", r.GetContainer().GetEnv(), r.GetAdjust())
		}
		if all := r.GetPluginMap(); all["10-setter"] == nil || all["90-checks"] == nil {
			t.Errorf("the validator is told of the plugins %v", slices.Collect(maps.Keys(all)))
		}
		for _, name := range []string{"rejected", "hangs"} {
			if _, err := c.TryCreateContainer(pod, real.ContainerSpec{Name: name}); err == nil || !strings.Contains(err.Error(), "checks") {
				t.Errorf("%s: %v", name, err)
			} else if name == "rejected" && !strings.Contains(err.Error(), "not on this node") {
				t.Errorf("the error does not say why: %v", err)
			}
			if _, left := listed(t, c.Direct(), name); left {
				t.Errorf("%s is still there", name)
			}
		}
		c.RunContainer(pod, real.ContainerSpec{Name: "after"}) // the validator that hung is disconnected
	})
}

// podUpdates is a plugin that is told of updates of pods.
type podUpdates struct {
	mu     sync.Mutex
	events []string
}

func (p *podUpdates) note(event string, r *api.LinuxResources) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, fmt.Sprintf("%s %d", event, r.GetCpu().GetShares().GetValue()))
}

func (p *podUpdates) UpdatePodSandbox(_ context.Context, _ *api.PodSandbox, _, r *api.LinuxResources) error {
	p.note("UpdatePodSandbox", r)
	if r.GetCpu().GetShares().GetValue() == 666 {
		return errors.New("too many")
	}
	return nil
}

func (p *podUpdates) PostUpdatePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.note("PostUpdatePodSandbox", pod.GetLinux().GetPodResources())
	return nil
}

// TestHostedPodUpdates has plugins asked before the resources of a pod change, and told afterwards: by the host with the
// new ones, by containerd 2.4 without any.
func TestHostedPodUpdates(t *testing.T) {
	t.Parallel()
	onBothSides(t, func(t *testing.T, side string, c *real.Containerd, socket string) {
		t.Helper()
		p := &podUpdates{}
		runStub(t, p, socket, "pods", "10")
		pod := c.RunPod(plain("p", ""))
		update := func(shares int64) error {
			_, err := c.CRI().UpdatePodSandboxResources(context.Background(), &cri.UpdatePodSandboxResourcesRequest{
				PodSandboxId: string(pod), Overhead: &cri.LinuxContainerResources{}, Resources: &cri.LinuxContainerResources{CpuShares: shares},
			})
			return err
		}
		real.Eventually(t, patiently, func() error { // until the plugin is synchronised
			if err := update(100); err != nil {
				t.Fatal(err)
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			if len(p.events) == 0 {
				return errors.New("the plugin was not asked")
			}
			return nil
		})
		p.mu.Lock()
		p.events = nil
		p.mu.Unlock()
		if err := update(200); err != nil {
			t.Error(err)
		}
		if err := update(666); err == nil || !strings.Contains(err.Error(), "too many") {
			t.Errorf("an update that the plugin refuses: %v", err)
		}
		post := "PostUpdatePodSandbox 200"
		if side == "containerd" {
			post = "PostUpdatePodSandbox 0"
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if want := []string{"UpdatePodSandbox 200", post, "UpdatePodSandbox 666"}; !slices.Equal(p.events, want) {
			t.Errorf("events %v, want %v", p.events, want)
		}
	})
}

// TestHostedStopped: nothing is created in a sandbox that has stopped; plugins are not asked about it. containerd's own
// NRI lets it be created (containerd issue 13599), so this is the host's alone.
func TestHostedStopped(t *testing.T) {
	t.Parallel()
	c := real.Start(t, real.WithoutNRI())
	_, socket := startHost(t, c, "")
	p := newPlugin(t).connect(socket, "life", "10")
	pod := c.RunPod(plain("p", ""))
	c.StopPod(pod)
	if _, err := c.TryCreateContainer(pod, real.ContainerSpec{Name: "late"}); err == nil || !strings.Contains(err.Error(), "has stopped") {
		t.Errorf("a container of a stopped sandbox: %v", err)
	}
	if _, left := listed(t, c.Direct(), "late"); left {
		t.Error("it is there")
	}
	p.becomes(t, []string{"RunPodSandbox p", "StopPodSandbox p"}, "p", "late")
}

// TestHostedLatePlugin: a plugin that connects when containers exist sees each of them whole, as the runtime has it. Our
// host asks the runtime then only about those that were created while no plugin was connected.
func TestHostedLatePlugin(t *testing.T) {
	t.Parallel()
	onBothSides(t, func(t *testing.T, _ string, c *real.Containerd, socket string) {
		t.Helper()
		pod := c.RunPod(plain("p", ""))
		c.CreateContainer(pod, real.ContainerSpec{Name: "created"})
		running := c.RunContainer(pod, real.ContainerSpec{Name: "running", Env: map[string]string{"SET": "1"}})
		resized := c.RunContainer(pod, real.ContainerSpec{Name: "resized"})
		if _, err := c.CRI().UpdateContainerResources(t.Context(), &cri.UpdateContainerResourcesRequest{
			ContainerId: string(resized), Linux: &cri.LinuxContainerResources{CpuShares: 333},
		}); err != nil {
			t.Fatal(err)
		}
		early := newPlugin(t).connect(socket, "early", "10")
		c.CreateContainer(pod, real.ContainerSpec{Name: "asked"})
		late := newPlugin(t).connect(socket, "late", "20")
		for _, p := range []*plugin{early, late} {
			for name, state := range map[string]api.ContainerState{
				"created": api.ContainerState_CONTAINER_CREATED, "running": api.ContainerState_CONTAINER_RUNNING,
				"resized": api.ContainerState_CONTAINER_RUNNING, "asked": api.ContainerState_CONTAINER_CREATED,
			} {
				k := p.seen("Synchronize", name)
				if k == nil && p == early && name == "asked" {
					continue // the container was created later
				}
				if k.GetState() != state || len(k.GetArgs()) == 0 || k.GetLinux().GetCgroupsPath() == "" || len(k.GetLinux().GetNamespaces()) == 0 || len(k.GetMounts()) == 0 {
					t.Errorf("%s is shown as %v", name, k)
				}
				if running := state == api.ContainerState_CONTAINER_RUNNING; running != (k.GetPid() > 0) {
					t.Errorf("%s has pid %d", name, k.GetPid())
				}
			}
			if k := p.seen("Synchronize", "running"); k.GetId() != string(running) || !slices.Contains(k.GetEnv(), "SET=1") {
				t.Errorf("running is shown as %s with environment %v", k.GetId(), k.GetEnv())
			}
			if k := p.seen("Synchronize", "resized"); k.GetLinux().GetResources().GetCpu().GetShares().GetValue() != 333 {
				t.Errorf("resized is shown with %v", k.GetLinux().GetResources())
			}
		}
	})
}

// TestHostedNothingLost has plugins connect while containers come and go on a real runtime. Each is told of every
// container exactly once: by its synchronisation or by an event. containerd's own NRI loses some (containerd issue
// 13698), so this is the host's alone.
func TestHostedNothingLost(t *testing.T) {
	t.Parallel()
	c := real.Start(t, real.WithoutNRI())
	_, socket := startHost(t, c, "")
	pod := c.RunPod(plain("p", ""))
	stop := make(chan struct{})
	var churn sync.WaitGroup
	var mu sync.Mutex
	made := map[string]bool{}
	for w := range 3 {
		churn.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				id, err := c.TryCreateContainer(pod, real.ContainerSpec{Name: fmt.Sprintf("c%d-%d", w, n)})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				made[string(id)] = true
				mu.Unlock()
			}
		})
	}
	var late []*plugin
	for n := range 4 {
		p := newPlugin(t).connect(socket, fmt.Sprint("late-", n), fmt.Sprint(20+n))
		late = append(late, p)
		real.Eventually(t, patiently, func() error {
			p.mu.Lock()
			defer p.mu.Unlock()
			if len(p.events) < 6 {
				return fmt.Errorf("%d events", len(p.events))
			}
			return nil
		})
	}
	close(stop)
	churn.Wait()
	for i, p := range late {
		p.mu.Lock()
		times := map[string]int{}
		for _, id := range p.start {
			times[id]++
		}
		for key, k := range p.ctrs {
			if strings.HasPrefix(key, "CreateContainer ") {
				times[k.GetId()]++
			}
		}
		p.mu.Unlock()
		for id := range made {
			if times[id] != 1 {
				t.Errorf("plugin %d was told %d times of container %s", i, times[id], id)
			}
		}
	}
	t.Logf("%d containers, 4 plugins connected meanwhile", len(made))
}
