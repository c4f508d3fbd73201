package real_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	nri "github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/test/real"
)

const soon = time.Minute

func TestSmoke(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t)
	pod := c.RunPod(real.PodSpec{QoS: real.Burstable, Resources: &cri.LinuxContainerResources{
		CpuShares: 1024, CpuPeriod: 100_000, CpuQuota: 150_000,
	}})
	if c.CgroupVersion() == 1 {
		same(t, "pod quota", c.PodKernelFile(pod, "cpu.cfs_quota_us"), "150000")
		same(t, "pod shares", c.PodKernelFile(pod, "cpu.shares"), "1024")
	}

	web := c.RunContainer(pod, real.ContainerSpec{
		Name: "web", Env: map[string]string{"ROLE": "front"},
		Resources: &cri.LinuxContainerResources{
			CpuShares: 512, CpuPeriod: 100_000, CpuQuota: 50_000, MemoryLimitInBytes: 64 << 20, CpusetCpus: "0",
		},
	})
	side := c.RunContainer(pod, real.ContainerSpec{
		Name: "side", Args: []string{"spin"},
		Resources: &cri.LinuxContainerResources{CpuShares: 512, CpusetCpus: "1", MemoryLimitInBytes: 32 << 20},
	})
	checkFirstView(t, c.FirstView(web), "0", "front")
	checkFirstView(t, c.FirstView(side), "1", "")
	checkLimits(t, c, web)

	sampler := c.Sample(real.NoSharing(func(dir string) bool { return filepath.Base(dir) == string(side) }))
	for _, restart := range []func(){func() {}, c.Restart, c.Kill9AndRestart} {
		restart()
		pid := c.ContainerPID(web)
		c.UpdateResources(web, &cri.LinuxContainerResources{CpusetCpus: "0-1"})
		same(t, "cpuset after update", c.KernelFile(web, "cpuset.cpus"), "0-1")
		c.UpdateResources(web, &cri.LinuxContainerResources{CpusetCpus: "0"})
		same(t, "cpuset after update", c.KernelFile(web, "cpuset.cpus"), "0")
		same(t, "process after restart", c.ContainerPID(web), pid)
	}
	found := sampler.Stop()
	t.Log(found)
	if found.Violations == 0 || found.Containers != 2 {
		t.Errorf("the sampler did not find web on side's CPU: %v", found)
	}

	once := c.RunContainer(pod, real.ContainerSpec{Args: []string{"exit", "3"}})
	same(t, "exit code", c.WaitExit(once), 3)
	c.RemoveContainer(once)
	c.StopContainer(web)
	c.StopPod(pod)
	c.RemovePod(pod)
}

// TestNRIReachesTheKernel shows that a plugin's adjustment is in force at the container's first instruction.
func TestNRIReachesTheKernel(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t, real.WithNRITimeout(15*time.Second))
	connect(t, c, &pinner{cpus: "1"})
	pod := c.RunPod(real.PodSpec{Annotations: map[string]string{"test.trimtab/pin": "yes"}})
	pinned := c.RunContainer(pod, real.ContainerSpec{Resources: &cri.LinuxContainerResources{CpuShares: 2, CpusetCpus: "0"}})

	checkFirstView(t, c.FirstView(pinned), "1", "")
	same(t, "cpuset", c.KernelFile(pinned, "cpuset.cpus"), "1")

	plain := c.RunPod(real.PodSpec{})
	free := c.RunContainer(plain, real.ContainerSpec{Resources: &cri.LinuxContainerResources{CpusetCpus: "0"}})
	checkFirstView(t, c.FirstView(free), "0", "")
}

func TestStartWithoutNRI(t *testing.T) {
	t.Parallel()
	c := real.Start(t, real.WithoutNRI())
	pod := c.RunPod(real.PodSpec{QoS: real.Guaranteed})
	seen := c.FirstView(c.RunContainer(pod, real.ContainerSpec{}))
	same(t, "CPUs", seen.NumCPU, runtime.NumCPU())
}

// TestConcurrentUse uses the harness from several goroutines and leaves all pods to the cleanup.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	c := real.Start(t)
	ids := make([]real.ContainerID, 6)
	var all errgroup
	for i := range ids {
		all.run(func() error {
			pod, err := c.TryRunPod(real.PodSpec{QoS: real.Burstable})
			if err != nil {
				return err
			}
			if ids[i], err = c.TryCreateContainer(pod, real.ContainerSpec{}); err != nil {
				return err
			}
			return c.TryStartContainer(ids[i])
		})
	}
	if err := all.wait(); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		same(t, "CPUs", c.FirstView(id).NumCPU, runtime.NumCPU())
	}
}

// errgroup collects the errors of goroutines.
type errgroup struct {
	going  sync.WaitGroup
	mu     sync.Mutex
	errors []error
}

func (g *errgroup) run(f func() error) {
	g.going.Go(func() {
		err := f()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.errors = append(g.errors, err)
	})
}

func (g *errgroup) wait() error {
	g.going.Wait()
	return errors.Join(g.errors...)
}

func checkFirstView(t *testing.T, seen real.View, cpus, role string) {
	t.Helper()
	same(t, "affinity at start", seen.Affinity, cpus)
	same(t, "allowed CPUs at start", seen.CPUsAllowed, cpus)
	same(t, "CPUs counted by the runtime before main", seen.NumCPU, 1)
	same(t, "cpuset.cpus at start", seen.Cgroup["cpuset.cpus"], cpus)
	same(t, "environment", seen.Env["ROLE"], role)
}

func checkLimits(t *testing.T, c *real.Containerd, id real.ContainerID) {
	t.Helper()
	want := map[string]string{"cpuset.cpus": "0", "memory.max": fmt.Sprint(64 << 20), "cpu.max": "50000 100000"}
	if c.CgroupVersion() == 1 {
		want = map[string]string{
			"cpuset.cpus": "0", "cpu.shares": "512", "cpu.cfs_quota_us": "50000", "cpu.cfs_period_us": "100000",
			"memory.limit_in_bytes": fmt.Sprint(64 << 20),
		}
	}
	seen := c.FirstView(id)
	for file, value := range want {
		same(t, file, c.KernelFile(id, file), value)
		same(t, file+" at start", seen.Cgroup[file], value)
	}
}

// pinner is a minimal plugin: it pins the containers of pods that request it.
type pinner struct {
	cpus string
	up   chan struct{}
}

var (
	_ stub.SynchronizeInterface     = (*pinner)(nil)
	_ stub.CreateContainerInterface = (*pinner)(nil)
)

func (p *pinner) Synchronize(context.Context, []*nri.PodSandbox, []*nri.Container) ([]*nri.ContainerUpdate, error) {
	close(p.up)
	return nil, nil
}

func (p *pinner) CreateContainer(
	_ context.Context, pod *nri.PodSandbox, _ *nri.Container,
) (*nri.ContainerAdjustment, []*nri.ContainerUpdate, error) {
	if pod.GetAnnotations()["test.trimtab/pin"] == "" {
		return nil, nil, nil
	}
	adjust := &nri.ContainerAdjustment{}
	adjust.SetLinuxCPUSetCPUs(p.cpus)
	return adjust, nil, nil
}

func connect(t *testing.T, c *real.Containerd, p *pinner) {
	t.Helper()
	p.up = make(chan struct{})
	s, err := stub.New(p, stub.WithPluginName("pinner"), stub.WithPluginIdx("10"), stub.WithSocketPath(c.NRISocket()))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	select {
	case <-p.up:
	case <-time.After(soon):
		t.Fatal("the runtime did not synchronize the plugin")
	}
}

func needTwoCPUs(t *testing.T) {
	t.Helper()
	if runtime.NumCPU() < 2 {
		t.Skip("needs CPUs 0 and 1")
	}
}

func same[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
