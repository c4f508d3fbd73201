package nrihost

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/sim"
	simcri "github.com/trimtab/trimtab/internal/sim/cri"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// TestMain runs a pre-installed plugin if the host started this program as one.
func TestMain(m *testing.M) {
	if os.Getenv("NRI_PLUGIN_NAME") != "" {
		launched()
		return
	}
	goleak.VerifyTestMain(m)
}

// launchedPlugin is a pre-installed plugin. It adds its configuration to the environment.
type launchedPlugin struct{ config string }

func (p *launchedPlugin) Configure(_ context.Context, config, _, _ string) (api.EventMask, error) {
	p.config = config
	return 0, nil
}

func (p *launchedPlugin) CreateContainer(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	a := &api.ContainerAdjustment{}
	a.AddEnv("CONFIGURED", p.config)
	return a, nil, nil
}

func launched() {
	s, err := stub.New(&launchedPlugin{})
	if err != nil {
		os.Exit(1)
	}
	if err := s.Run(context.Background()); err != nil {
		os.Exit(2)
	}
}

// rig is a host in front of the embedded runtime, whose stored specs cannot be changed, and a client of the
// host.
type rig struct {
	t       *testing.T
	host    *Host
	dir     string
	runtime *sim.Runtime
	calls   cri.RuntimeServiceClient // through the host
	direct  cri.RuntimeServiceClient
}

func newRig(t *testing.T, change func(*Options)) *rig {
	t.Helper()
	machine, err := describe.Parse("4c")
	if err != nil {
		t.Fatal(err)
	}
	k, err := kernel.NewCgroups(cgroup.V1, "0-3", "0")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r, err := sim.NewRuntime(sim.Options{Machine: machine, Kernel: k, Version: cgroup.V1, Driver: sim.Cgroupfs, Socket: filepath.Join(dir, "r"), Seed: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	server, err := simcri.Serve(r, simcri.Options{Socket: filepath.Join(dir, "c")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	o := Options{
		Socket: filepath.Join(dir, "n"), PluginPath: filepath.Join(dir, "plugins"), PluginConfigPath: filepath.Join(dir, "conf"),
		RequestTimeout: 10 * time.Second, JournalDirectory: filepath.Join(dir, "state"), RuntimeSocket: filepath.Join(dir, "c"), PollInterval: 20 * time.Millisecond,
		Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	g := &rig{t: t, host: New(o), dir: dir, runtime: r}
	l, err := net.Listen("unix", filepath.Join(dir, "h"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		done <- g.host.Serve(context.Background(), l, func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, "c"))
		})
	}()
	t.Cleanup(func() {
		l.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		g.host.Stop(0, time.Second)
	})
	g.calls, g.direct = client(t, filepath.Join(dir, "h")), client(t, filepath.Join(dir, "c"))
	return g
}

func client(t *testing.T, path string) cri.RuntimeServiceClient {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return cri.NewRuntimeServiceClient(conn)
}

func (g *rig) runPod(name string) (string, error) {
	p, err := g.calls.RunPodSandbox(g.t.Context(), &cri.RunPodSandboxRequest{Config: &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Namespace: "d", Name: name, Uid: "u-" + name}, Linux: &cri.LinuxPodSandboxConfig{CgroupParent: "/" + g.runtime.PodDir("Burstable", "u-"+name)},
	}})
	return p.GetPodSandboxId(), err
}

func (g *rig) create(pod, name string) (string, error) {
	k, err := g.calls.CreateContainer(g.t.Context(), &cri.CreateContainerRequest{
		PodSandboxId: pod, SandboxConfig: &cri.PodSandboxConfig{Metadata: &cri.PodSandboxMetadata{Name: "p", Namespace: "d"}},
		Config: &cri.ContainerConfig{Metadata: &cri.ContainerMetadata{Name: name}, Envs: []*cri.KeyValue{{Key: "A", Value: []byte("b")}}},
	})
	return k.GetContainerId(), err
}

// plugin is a plugin made with the upstream stub.
type plugin struct {
	create func(*api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error)
	stub   stub.Stub
	synced chan struct{}
	once   sync.Once

	mu     sync.Mutex
	events []string
}

func (p *plugin) Synchronize(context.Context, []*api.PodSandbox, []*api.Container) ([]*api.ContainerUpdate, error) {
	p.once.Do(func() { close(p.synced) })
	return nil, nil
}

func (p *plugin) note(event string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, event)
	return nil
}

func (p *plugin) RunPodSandbox(context.Context, *api.PodSandbox) error { return p.note("run") }

func (p *plugin) StopPodSandbox(context.Context, *api.PodSandbox) error { return p.note("stop") }

func (p *plugin) CreateContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	_ = p.note("create")
	if p.create == nil {
		return nil, nil, nil
	}
	return p.create(c)
}

func (p *plugin) StopContainer(context.Context, *api.PodSandbox, *api.Container) ([]*api.ContainerUpdate, error) {
	return nil, p.note("stop container")
}

// plug connects a plugin; the error is that of its registration.
func (g *rig) plug(p *plugin, name string) error {
	g.t.Helper()
	eventually(g.t, func() error {
		if !g.host.serving.Load() {
			return errors.New("the host does not run")
		}
		return nil
	})
	p.synced = make(chan struct{})
	s, err := stub.New(p, stub.WithPluginName(name), stub.WithPluginIdx("10"), stub.WithSocketPath(g.host.opts.Socket), stub.WithOnClose(func() {}))
	if err != nil {
		g.t.Fatal(err)
	}
	p.stub = s
	if err := s.Start(g.t.Context()); err != nil {
		return err
	}
	g.t.Cleanup(s.Stop)
	select {
	case <-p.synced:
		eventually(g.t, func() error { // the library counts a plugin after it has synchronised it
			if g.host.nri.BlockPluginSync().Unblock(); g.host.plugins.byName["10-"+name] == nil {
				return errors.New("not known")
			}
			return nil
		})
		return nil
	case <-time.After(time.Minute):
		return errors.New("not synchronised")
	}
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	end := time.Now().Add(time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
		<-ticker.C
	}
}
