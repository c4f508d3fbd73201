package real_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/real"
)

// TestHostedHostile has plugins that break the rules: each is reported or skipped, and pods keep working.
func TestHostedHostile(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t, real.WithoutNRI())
	needV1(t, c)
	_, socket := startHost(t, c, "")
	owner := c.RunContainer(c.RunPod(owning("db", "1")), real.ContainerSpec{Name: "db", Resources: oneCPU})
	pod := c.RunPod(plain("victim", ""))

	first := newPlugin(t)
	first.create = func(_ *api.PodSandbox, k *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
		a := &api.ContainerAdjustment{}
		switch k.GetName() {
		case "claimed":
			a.AddEnv("CLAIMED", "first")
		case "owned-cpus":
			a.SetLinuxCPUSetCPUs("0-1")
		case "large":
			a.AddAnnotation("plugin.example/large", strings.Repeat("x", 1<<20))
		case "too-large":
			a.AddAnnotation("plugin.example/large", strings.Repeat("x", 5<<20))
		case "unknown":
			u := &api.ContainerUpdate{}
			u.SetContainerId("there-is-none")
			u.SetLinuxCPUShares(2)
			o := &api.ContainerUpdate{}
			o.SetContainerId(string(owner))
			o.SetLinuxCPUSetCPUs("0")
			return a, []*api.ContainerUpdate{u, o}, nil
		case "moved":
			a.SetLinuxCgroupsPath("/elsewhere")
		}
		return a, nil, nil
	}
	first.connect(socket, "first", "10")
	second := newPlugin(t)
	second.create = func(_ *api.PodSandbox, k *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
		a := &api.ContainerAdjustment{}
		if k.GetName() == "claimed" {
			a.AddEnv("CLAIMED", "second")
		}
		return a, nil, nil
	}
	second.connect(socket, "second", "20")

	_, err := c.TryCreateContainer(pod, real.ContainerSpec{Name: "claimed"})
	if err == nil || !strings.Contains(err.Error(), "10-first") || !strings.Contains(err.Error(), "20-second") {
		t.Errorf("two plugins set one variable: %v", err)
	}
	_, err = c.TryCreateContainer(pod, real.ContainerSpec{Name: "moved"})
	if err == nil || !strings.Contains(err.Error(), "cgroups_path") {
		t.Errorf("a plugin moves a container: %v", err)
	}
	greedy := c.RunContainer(pod, real.ContainerSpec{Name: "owned-cpus"})
	same(t, "CPUs of a container whose plugin chose owned ones", c.KernelFile(greedy, "cpuset.cpus"), "0")
	c.RunContainer(pod, real.ContainerSpec{Name: "unknown"})
	same(t, "CPUs of an owner whose plugin chose others", c.KernelFile(owner, "cpuset.cpus"), "1")

	id := c.RunContainer(pod, real.ContainerSpec{Name: "large"})
	if n := len(spec(t, c, id).Annotations["plugin.example/large"]); n != 1<<20 {
		t.Errorf("an annotation of a mebibyte has %d bytes", n)
	}
	if _, err = c.TryCreateContainer(pod, real.ContainerSpec{Name: "too-large"}); err != nil {
		t.Logf("an answer of 5 MiB: %.200v", err)
	}
	for _, name := range []string{"claimed", "moved"} {
		if _, seen := listed(t, c.Direct(), name); seen {
			t.Errorf("%s is still there", name)
		}
	}

	failed, err := second.stub.UpdateContainers([]*api.ContainerUpdate{{ContainerId: "there-is-none"}, sharesOf(string(greedy), 555)})
	if err != nil || len(failed) != 1 || failed[0].GetContainerId() != "there-is-none" {
		t.Errorf("updates that failed: %v, %v", failed, err)
	}
	same(t, "shares that a plugin set by itself", c.KernelFile(greedy, "cpu.shares"), "555")

	second.create = func(*api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
		go second.stub.Stop() // the plugin dies during the request
		select {}
	}
	c.RunContainer(pod, real.ContainerSpec{Name: "goes-on"})
	c.RunContainer(pod, real.ContainerSpec{Name: "goes-on-again"})
}

func sharesOf(id string, shares uint64) *api.ContainerUpdate {
	u := &api.ContainerUpdate{}
	u.SetContainerId(id)
	u.SetLinuxCPUShares(shares)
	return u
}

// TestHostedKilled kills the agent while plugins are asked about a container: the container was never
// decided, so the next agent removes it, and the kubelet's retry succeeds. Plugins are not notified again
// of pods that stopped before.
func TestHostedKilled(t *testing.T) {
	t.Parallel()
	c := real.Start(t, real.WithoutNRI())
	a, socket := startHost(t, c, "")
	p := newPlugin(t)
	asked, release := make(chan struct{}), make(chan struct{})
	p.during = func(event, _, _ string) {
		if event == "CreateContainer" {
			close(asked)
			<-release
		}
	}
	p.connect(socket, "hangs", "10")
	pod := c.RunPod(plain("p", ""))
	stopped := c.RunPod(plain("stopped", ""))
	c.StopPod(stopped)
	failed := make(chan error, 1)
	go func() {
		_, err := c.TryCreateContainer(pod, real.ContainerSpec{Name: "main"})
		failed <- err
	}()
	<-asked
	a.kill()
	close(release)
	if err := <-failed; err == nil {
		t.Error("a call that was cut succeeded")
	}
	if _, there := listed(t, c.Direct(), "main"); !there {
		t.Fatal("the runtime has no container whose creation was cut")
	}
	a.run()
	answers(t, c)
	real.Eventually(t, patiently, func() error {
		if _, there := listed(t, c.Direct(), "main"); there {
			return errors.New("the container that was never decided is still there")
		}
		return nil
	})
	q := newPlugin(t).connect(socket, "after", "10")
	c.RunContainer(pod, real.ContainerSpec{Name: "main"})
	c.StopPod(stopped)
	c.RemovePod(stopped)
	q.becomes(t, []string{"RemovePodSandbox stopped"}, "stopped")
}

// TestHosted16 and TestHosted17 adjust containers of older containerds.
func TestHosted16(t *testing.T) {
	t.Parallel()
	hostedOlder(t, real.V16)
}

func TestHosted17(t *testing.T) {
	t.Parallel()
	hostedOlder(t, real.V17)
}

func hostedOlder(t *testing.T, r real.Release) {
	t.Helper()
	needTwoCPUs(t)
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	if !real.Privately(t, builtBinary+"="+program) {
		return
	}
	c := real.Start(t, real.WithRelease(r), real.WithoutNRI())
	needV1(t, c)
	_, socket := startHost(t, c, "")
	p := newPlugin(t)
	p.create = func(*api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
		a := &api.ContainerAdjustment{}
		a.AddEnv("ADDED", "by a plugin")
		a.SetLinuxCPUSetCPUs("0")
		a.SetLinuxPidLimits(77)
		return a, nil, nil
	}
	p.connect(socket, "fields", "10")
	id := c.RunContainer(c.RunPod(plain("p", "")), real.ContainerSpec{Name: "adjusted"})
	same(t, "id in CreateContainer", p.seen("CreateContainer", "adjusted").GetId(), string(id))
	same(t, "env", c.FirstView(id).Env["ADDED"], "by a plugin")
	same(t, "cpuset", c.KernelFile(id, "cpuset.cpus"), "0")
	same(t, "pids", c.KernelFile(id, "pids.max"), "77")
	c.UpdateResources(id, &cri.LinuxContainerResources{CpuShares: 600})
	same(t, "after an update", c.KernelFile(id, "cpu.shares")+" "+c.KernelFile(id, "pids.max"), "600 77")
}
