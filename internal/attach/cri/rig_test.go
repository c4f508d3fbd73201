package cri_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/attach/cri"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/attachtest"
)

func TestMain(m *testing.M) {
	if runtime := os.Getenv(childRuntime); runtime != "" {
		os.Exit(serveHandedDown(runtime))
	}
	goleak.VerifyTestMain(m)
}

// rig is an attachment between a caller and a runtime in memory.
type rig struct {
	t       *testing.T
	dir     string
	runtime *fakeRuntime
	h       *handler
	a       *cri.Attachment
	client  api.RuntimeServiceClient
	stop    func()
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dir := t.TempDir()
	g := &rig{t: t, dir: dir, runtime: startRuntime(t, filepath.Join(dir, "r.sock")), h: newHandler()}
	g.attach(false)
	return g
}

func newHandler() *handler {
	return &handler{answer: map[lifecycle.Kind]func(lifecycle.Event) (conductor.Answer, error){}}
}

func (g *rig) socket() string { return filepath.Join(g.dir, "t.sock") }

// again returns another attachment at the same socket.
func (g *rig) again() *cri.Attachment { return cri.New(g.options(false)) }

func (g *rig) options(fail bool) cri.Options {
	return cri.Options{
		Socket: g.socket(), Runtime: g.runtime.path, Handler: g.h, Log: slog.New(slog.DiscardHandler),
		ListInterval: 20 * time.Millisecond, RuntimeTimeout: 2 * time.Second, FailClosed: fail,
	}
}

func (g *rig) attach(fail bool) {
	g.t.Helper()
	g.attachWith(g.options(fail))
}

func (g *rig) attachWith(o cri.Options) {
	g.t.Helper()
	g.a = cri.New(o)
	end := attachtest.Run(g.t, g.a.Run)
	attachtest.Until(g.t, "the socket opens", func() bool {
		c, err := net.Dial("unix", g.socket())
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	conn, err := grpc.NewClient("unix://"+g.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		g.t.Fatal(err)
	}
	g.client = api.NewRuntimeServiceClient(conn)
	g.stop = sync.OnceFunc(func() {
		_ = conn.Close()
		end()
	})
	g.t.Cleanup(func() { g.stop() })
}

func (g *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(g.t.Context(), 20*time.Second)
	g.t.Cleanup(cancel)
	return ctx
}

func (g *rig) runPod() string {
	g.t.Helper()
	r, err := g.client.RunPodSandbox(g.ctx(), &api.RunPodSandboxRequest{Config: podConfig(), RuntimeHandler: "kata"})
	if err != nil {
		g.t.Fatal(err)
	}
	return r.PodSandboxId
}

func podConfig() *api.PodSandboxConfig {
	return &api.PodSandboxConfig{
		Metadata: &api.PodSandboxMetadata{Name: "web-0", Uid: "u-1", Namespace: "shop"},
		Labels:   map[string]string{"app": "web"}, Annotations: map[string]string{"k": "v"},
		Linux: &api.LinuxPodSandboxConfig{CgroupParent: "/kubepods/podu-1", Resources: &api.LinuxContainerResources{CpuShares: 512}},
	}
}

func config() *api.ContainerConfig {
	return &api.ContainerConfig{
		Metadata: &api.ContainerMetadata{Name: "app"}, Command: []string{"sleep"}, Args: []string{"1"},
		Envs:  []*api.KeyValue{{Key: "A", Value: []byte("1")}, {Key: "B", Value: []byte("2")}},
		Linux: &api.LinuxContainerConfig{Resources: &api.LinuxContainerResources{CpuShares: 100, CpuPeriod: 100_000, CpuQuota: 20_000, OomScoreAdj: 5}},
	}
}

func (g *rig) create(pod string, c *api.ContainerConfig) (string, error) {
	r, err := g.client.CreateContainer(g.ctx(), &api.CreateContainerRequest{PodSandboxId: pod, Config: c, SandboxConfig: podConfig()})
	return r.GetContainerId(), err
}

func (g *rig) run(pod string) string {
	g.t.Helper()
	id, err := g.create(pod, config())
	if err != nil {
		g.t.Fatal(err)
	}
	if _, err := g.client.StartContainer(g.ctx(), &api.StartContainerRequest{ContainerId: id}); err != nil {
		g.t.Fatal(err)
	}
	return id
}
