// Package attachtest has helpers for tests of attachments.
package attachtest

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Until waits until a condition holds. If it does not hold within a minute, the test fails with the description.
func Until(t testing.TB, description string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) { //nolint:forbidigo // polls until the deadline
		if time.Now().After(end) {
			t.Fatalf("a condition did not hold within a minute: %s", description)
		}
	}
}

// Run runs an attachment until the test ends or the returned function is called.
func Run(t testing.TB, run func(ctx context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the attachment ended with an error: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// Serve serves a CRI runtime at a socket until the test ends or the returned function is called.
func Serve(t testing.TB, path string, runtime cri.RuntimeServiceServer, o ...grpc.ServerOption) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(o...)
	cri.RegisterRuntimeServiceServer(server, runtime)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	stop = sync.OnceFunc(func() {
		server.Stop()
		<-done
	})
	t.Cleanup(stop)
	return stop
}

// StatusError returns the error with which a test runtime answers a status request of a pod or container. The map errs
// has these errors by id, and mu guards the map. If the map has a nil error for an id, StatusError blocks until ctx
// ends, like a runtime that never answers. If the map does not have the id, StatusError returns nil at once.
func StatusError(ctx context.Context, mu sync.Locker, errs *map[string]error, request any) error {
	id := ""
	switch q := request.(type) {
	case *cri.PodSandboxStatusRequest:
		id = q.PodSandboxId
	case *cri.ContainerStatusRequest:
		id = q.ContainerId
	}
	mu.Lock()
	err, known := (*errs)[id]
	mu.Unlock()
	if known && err == nil {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	return err
}
