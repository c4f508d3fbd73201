package bench

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	hooks "github.com/trimtab/trimtab/api/runtime/v1alpha1"
)

// hookServer answers a creation with the request and one more variable.
type hookServer struct {
	hooks.UnimplementedRuntimeHookServiceServer

	calls atomic.Int64
}

func (h *hookServer) PreCreateContainerHook(_ context.Context, r *hooks.ContainerResourceHookRequest) (*hooks.ContainerResourceHookResponse, error) {
	h.calls.Add(1)
	if r.ContainerEnvs == nil {
		r.ContainerEnvs = map[string]string{}
	}
	r.ContainerEnvs["ANSWERED"] = "1"
	return &hooks.ContainerResourceHookResponse{
		ContainerAnnotations: r.ContainerAnnotations, ContainerResources: r.ContainerResources, PodCgroupParent: r.PodCgroupParent, ContainerEnvs: r.ContainerEnvs,
	}, nil
}

// openHookServer starts the server and returns the directory with its registration file.
func openHookServer(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	socket, files := filepath.Join(dir, "h"), filepath.Join(dir, "d")
	l, err := net.Listen("unix", socket)
	if err != nil {
		b.Fatal(err)
	}
	srv, h := grpc.NewServer(), &hookServer{}
	hooks.RegisterRuntimeHookServiceServer(srv, h)
	go func() { _ = srv.Serve(l) }()
	b.Cleanup(func() {
		srv.Stop()
		if h.calls.Load() == 0 && *criCalls == "" {
			b.Error("the hook server was never called")
		}
	})
	if err := os.Mkdir(files, 0o755); err != nil {
		b.Fatal(err)
	}
	text := fmt.Sprintf(`{"remote-endpoint": %q, "failure-policy": "Fail", "runtime-hooks": ["PreCreateContainer"]}`, socket)
	if err := os.WriteFile(filepath.Join(files, "server.json"), []byte(text), 0o644); err != nil {
		b.Fatal(err)
	}
	return files
}
