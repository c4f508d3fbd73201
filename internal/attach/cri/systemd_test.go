package cri_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/attach/cri"
	"github.com/trimtab/trimtab/test/attachtest"
)

// childRuntime makes the test's program the agent of TestSystemdSocket.
const childRuntime = "TRIMTAB_TEST_RUNTIME"

// serveHandedDown is that agent: it serves the sockets that it got until its input ends.
func serveHandedDown(runtime string) int {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		cancel()
	}()
	handed, err := cri.SystemdListeners()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	a := cri.New(cri.Options{Socket: "/nowhere/at/all.sock", Listeners: handed, Runtime: runtime, Handler: newHandler(), Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err := a.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// handedDown returns a socket that the test holds as systemd does, and a function that starts an agent on
// it. That function returns another one that ends the agent and waits for its end, because systemd starts
// no other agent before.
func handedDown(t *testing.T, runtime string) (path string, agent func() (end func())) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "t.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	file, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return path, func() func() {
		t.Helper()
		child := exec.CommandContext(t.Context(), "/bin/sh", "-c", `LISTEN_PID=$$ exec "$0"`, os.Args[0])
		child.Env = append(os.Environ(), childRuntime+"="+runtime, "LISTEN_FDS=1", "GORACE=atexit_sleep_ms=0")
		child.ExtraFiles = []*os.File{file}
		child.Stderr = os.Stderr
		input, err := child.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		return func() {
			t.Helper()
			_ = input.Close()
			if err := child.Wait(); err != nil {
				t.Errorf("the agent: %v", err)
			}
		}
	}
}

func caller(t *testing.T, path string) api.RuntimeServiceClient {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return api.NewRuntimeServiceClient(conn)
}

// TestSystemdSocket passes one socket to several agents, one after another. Calls that are made while no
// agent runs wait, and succeed.
func TestSystemdSocket(t *testing.T) {
	r := startRuntime(t, filepath.Join(t.TempDir(), "r.sock"))
	path, agent := handedDown(t, r.path)
	client := caller(t, path)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for range 3 {
		answer := make(chan error, 1)
		go func() { // before the agent is there
			_, err := client.Version(ctx, &api.VersionRequest{}, grpc.WaitForReady(true))
			answer <- err
		}()
		end := agent()
		if err := <-answer; err != nil {
			t.Errorf("a call that waited: %v", err)
		}
		end()
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("an agent took systemd's socket away: %v", err)
	}
}

// TestHandover runs agents on one socket, one after another, during calls: no call fails, of whatever kind
// and at whatever moment the agents change. The caller repeats nothing.
func TestHandover(t *testing.T) {
	r := startRuntime(t, filepath.Join(t.TempDir(), "r.sock"))
	path, agent := handedDown(t, r.path)
	end := agent()
	stop := make(chan struct{})
	var made atomic.Int64
	var load sync.WaitGroup
	for i := range 6 {
		client := caller(t, path)
		load.Go(func() {
			for stopped := false; !stopped; {
				var err error
				if i == 5 {
					err = onceAnew(t.Context(), path)
				} else {
					err = oneOf(t.Context(), client, i)
				}
				if err != nil {
					t.Error(err)
					return
				}
				made.Add(1)
				select {
				case <-stop:
					stopped = true
				default:
				}
			}
		})
	}
	for range 8 {
		enough := made.Load() + 100
		attachtest.Until(t, "calls are made", func() bool { return made.Load() > enough || t.Failed() })
		end()
		end = agent()
	}
	close(stop)
	load.Wait()
	end()
	t.Logf("%d calls", made.Load())
}

// onceAnew opens a new connection for one call.
func onceAnew(ctx context.Context, path string) error {
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	return oneOf(ctx, api.NewRuntimeServiceClient(conn), 0)
}

// oneOf makes calls of one kind: passed, held, and streams.
func oneOf(ctx context.Context, client api.RuntimeServiceClient, kind int) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	switch kind % 3 {
	case 0:
		_, err := client.Version(ctx, &api.VersionRequest{})
		return err
	case 1:
		pod, err := client.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Config: podConfig()})
		if err != nil {
			return fmt.Errorf("run a pod: %w", err)
		}
		ctr, err := client.CreateContainer(ctx, &api.CreateContainerRequest{PodSandboxId: pod.PodSandboxId, Config: config()})
		if err != nil {
			return fmt.Errorf("create: %w", err)
		}
		if _, err := client.StartContainer(ctx, &api.StartContainerRequest{ContainerId: ctr.ContainerId}); err != nil {
			return fmt.Errorf("start: %w", err)
		}
		_, err = client.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{PodSandboxId: pod.PodSandboxId})
		return err
	}
	events, err := client.GetContainerEvents(ctx, &api.GetEventsRequest{})
	for n := 0; err == nil; n++ {
		_, err = events.Recv()
		if status.Code(err) == codes.DataLoss && n == 50 {
			return nil // this runtime ends streams in this way
		}
	}
	return fmt.Errorf("stream: %w", err)
}
