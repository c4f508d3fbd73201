package hookserver

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	hooks "github.com/trimtab/trimtab/api/runtime/v1alpha1"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// fake is a hook server on its own socket.
type fake struct {
	hooks.UnimplementedRuntimeHookServiceServer

	socket string
	server *grpc.Server

	mu        sync.Mutex
	calls     []string
	last      *hooks.ContainerResourceHookRequest
	lastPod   *hooks.PodSandboxHookRequest
	container func(context.Context, *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error)
	pod       func(context.Context, *hooks.PodSandboxHookRequest) (*hooks.PodSandboxHookResponse, error)
}

func serve(t *testing.T) *fake {
	t.Helper()
	f := &fake{socket: filepath.Join(t.TempDir(), "s")}
	f.start(t)
	return f
}

func (f *fake) start(t *testing.T) {
	t.Helper()
	l, err := net.Listen("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer() // f.server may be another one when this one ends
	f.server = server
	hooks.RegisterRuntimeHookServiceServer(server, f)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
}

func (f *fake) note(call string, c *hooks.ContainerResourceHookRequest, p *hooks.PodSandboxHookRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, call)
	if c != nil {
		f.last = c
	}
	if p != nil {
		f.lastPod = p
	}
}

func (f *fake) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.calls...)
}

func (f *fake) onContainer(ctx context.Context, call string, r *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
	f.note(call, r, nil)
	if f.container == nil {
		return &hooks.ContainerResourceHookResponse{}, nil
	}
	return f.container(ctx, r)
}

func (f *fake) PreCreateContainerHook(ctx context.Context, r *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
	return f.onContainer(ctx, "create", r)
}

func (f *fake) PreStartContainerHook(ctx context.Context, r *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
	return f.onContainer(ctx, "start", r)
}

func (f *fake) PostStartContainerHook(ctx context.Context, r *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
	return f.onContainer(ctx, "started", r)
}

func (f *fake) PostStopContainerHook(ctx context.Context, r *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
	return f.onContainer(ctx, "stopped", r)
}

func (f *fake) PreUpdateContainerResourcesHook(ctx context.Context, r *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
	return f.onContainer(ctx, "update", r)
}

func (f *fake) onPod(ctx context.Context, call string, r *hooks.PodSandboxHookRequest) (*hooks.PodSandboxHookResponse, error) {
	f.note(call, nil, r)
	if f.pod == nil {
		return &hooks.PodSandboxHookResponse{}, nil
	}
	return f.pod(ctx, r)
}

func (f *fake) PreRunPodSandboxHook(ctx context.Context, r *hooks.PodSandboxHookRequest) (*hooks.PodSandboxHookResponse, error) {
	return f.onPod(ctx, "run", r)
}

func (f *fake) PostStopPodSandboxHook(ctx context.Context, r *hooks.PodSandboxHookRequest) (*hooks.PodSandboxHookResponse, error) {
	return f.onPod(ctx, "pod stopped", r)
}

// register writes a server's file.
func register(t *testing.T, dir, name string, r Registration) {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, name), string(text))
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func servers(t *testing.T, change func(*Options)) (*Servers, string) {
	t.Helper()
	dir := t.TempDir()
	o := Options{Directory: dir, Timeout: 10 * time.Second, Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&o)
	}
	s := New(o)
	t.Cleanup(s.Close)
	return s, o.Directory
}

// sample is a creation with a value in every field.
func sample() *lifecycle.Event {
	return &lifecycle.Event{
		Kind: lifecycle.CreateContainer,
		Pod: &lifecycle.Pod{
			ID: "sandbox", Name: "web-0", UID: "uid-1", Namespace: "shop", Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{"a": "1"}, CgroupParent: "/kubepods/burstable/poduid-1", RuntimeHandler: "runc",
			Resources: &lifecycle.Resources{CPU: lifecycle.CPU{Shares: lifecycle.Some[uint64](512)}},
		},
		Container: &lifecycle.Container{
			ID: "creating-1", Name: "app", Annotations: map[string]string{restartCountKey: "2"}, Env: []string{"PATH=/bin", "EMPTY=", "EQ=a=b"},
			OOMScoreAdj: lifecycle.Some[int64](900),
			Resources: lifecycle.Resources{
				CPU:       lifecycle.CPU{Shares: lifecycle.Some[uint64](256), Quota: lifecycle.Some[int64](50000), Period: lifecycle.Some[uint64](100000)},
				Memory:    lifecycle.Memory{Limit: lifecycle.Some[int64](1 << 30)},
				Hugepages: []lifecycle.HugepageLimit{{Size: "2MB", Limit: 1 << 21}},
			},
		},
	}
}
