package cri_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/attach/cri"
)

// childRuntime makes the test's program the agent of TestSystemdSocket.
const childRuntime = "TRIMTAB_TEST_RUNTIME"

// serveHandedDown is that agent: it serves the sockets it was given until its
// input ends.
func serveHandedDown(runtime string) int {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		cancel()
	}()
	handed, err := cri.HandedDown(os.Getenv)
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

// TestSystemdSocket hands one socket to agents that follow one another. Calls
// made while there is none wait, and succeed.
func TestSystemdSocket(t *testing.T) {
	dir := t.TempDir()
	r := startRuntime(t, filepath.Join(dir, "r.sock"))
	path := filepath.Join(dir, "t.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for range 3 {
		answer := make(chan error, 1)
		go func() { // before the agent is there
			_, err := api.NewRuntimeServiceClient(conn).Version(ctx, &api.VersionRequest{}, grpc.WaitForReady(true))
			answer <- err
		}()
		child := exec.CommandContext(ctx, "/bin/sh", "-c", `LISTEN_PID=$$ exec "$0"`, os.Args[0])
		child.Env = append(os.Environ(), childRuntime+"="+r.path, "LISTEN_FDS=1")
		child.ExtraFiles = []*os.File{file}
		child.Stderr = os.Stderr
		end, err := child.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		if err := <-answer; err != nil {
			t.Errorf("a call that waited: %v", err)
		}
		_ = end.Close()
		if err := child.Wait(); err != nil {
			t.Errorf("the agent: %v", err)
		}
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("an agent took systemd's socket away: %v", err)
	}
}
