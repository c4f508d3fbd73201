package sim

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"go.uber.org/goleak"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

func TestMain(m *testing.M) {
	SetNRILog(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

// plugin is a scripted NRI plugin.
type plugin struct {
	mu         sync.Mutex
	events     []string
	pods       []*api.PodSandbox
	containers []*api.Container
	synced     chan struct{}

	create func(*api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error)
	start  func(*api.Container) error
	update func(*api.Container, *api.LinuxResources) []*api.ContainerUpdate
	stop   func(*api.Container) []*api.ContainerUpdate
	runPod func(*api.PodSandbox) error
}

func (p *plugin) note(event, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, strings.TrimSpace(event+" "+name))
}

func (p *plugin) seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.events...)
}

func (p *plugin) Synchronize(_ context.Context, pods []*api.PodSandbox, cs []*api.Container) ([]*api.ContainerUpdate, error) {
	p.note("Synchronize", "")
	p.mu.Lock()
	p.pods, p.containers = pods, cs
	p.mu.Unlock()
	p.synced <- struct{}{}
	return nil, nil
}

func (p *plugin) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.note("RunPodSandbox", pod.Name)
	if p.runPod != nil {
		return p.runPod(pod)
	}
	return nil
}

func (p *plugin) StopPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.note("StopPodSandbox", pod.Name)
	return nil
}

func (p *plugin) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.note("RemovePodSandbox", pod.Name)
	return nil
}

func (p *plugin) CreateContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	p.note("CreateContainer", c.Name)
	if p.create == nil {
		return nil, nil, nil
	}
	return p.create(pod, c)
}

func (p *plugin) StartContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	p.note("StartContainer", c.Name)
	if p.start != nil {
		return p.start(c)
	}
	return nil
}

func (p *plugin) UpdateContainer(_ context.Context, _ *api.PodSandbox, c *api.Container, r *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	p.note("UpdateContainer", c.Name)
	if p.update == nil {
		return nil, nil
	}
	return p.update(c, r), nil
}

func (p *plugin) StopContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate, error) {
	p.note("StopContainer", c.Name)
	if p.stop == nil {
		return nil, nil
	}
	return p.stop(c), nil
}

func (p *plugin) RemoveContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	p.note("RemoveContainer", c.Name)
	return nil
}

// connect registers a plugin and waits until it is synchronised.
func connect(t *testing.T, socket string, p *plugin) stub.Stub {
	t.Helper()
	p.synced = make(chan struct{}, 4)
	s, err := stub.New(p, stub.WithPluginName("test"), stub.WithPluginIdx("10"), stub.WithSocketPath(socket),
		stub.WithOnClose(func() {}))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Stop(); s.Wait() })
	select {
	case <-p.synced:
	case <-time.After(time.Minute):
		t.Fatal("no Synchronize")
	}
	return s
}

// newRuntime starts a runtime on a machine of two NUMA nodes, four cores and eight threads.
func newRuntime(t *testing.T, version cgroup.Version, driver Driver) (*Runtime, *kernel.Cgroups) {
	t.Helper()
	m, err := describe.Parse("1s x 2n x 2c x 2t")
	if err != nil {
		t.Fatal(err)
	}
	k, err := kernel.NewCgroups(version, "0-7", "0-1")
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewRuntime(Options{
		Machine: m, Kernel: k, Version: version, Driver: driver, Seed: t.Name(),
		Socket: filepath.Join(t.TempDir(), "nri.sock"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	return r, k
}

func pod(name, qos string) scenario.Pod {
	return scenario.Pod{Namespace: "default", Name: name, QoS: qos}
}

func run(t *testing.T, r *Runtime, p scenario.Pod, cs ...scenario.Container) {
	t.Helper()
	if err := r.RunPodSandbox(t.Context(), p, SumResources(p.QoS, cs)); err != nil {
		t.Fatal(err)
	}
	for _, c := range cs {
		ref := scenario.PodRef(p.Namespace, p.Name)
		if err := errors.Join(r.CreateContainer(t.Context(), ref, c), r.StartContainer(t.Context(), ref.In(c.Name))); err != nil {
			t.Fatal(err)
		}
	}
}

func limited(name string) scenario.Container {
	return scenario.Container{Name: name, Env: map[string]string{"A": "1"}, Resources: scenario.Resources{
		Shares: new(uint64(1024)), Quota: new(int64(50000)), Memory: new(int64(1 << 30)),
	}}
}
