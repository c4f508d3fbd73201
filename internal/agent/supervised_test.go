package agent_test

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSupervised: systemd gets the start, the state, keep-alives for its watchdog, and the end.
func TestSupervised(t *testing.T) {
	dir := t.TempDir()
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", filepath.Join(dir, "notify"))
	t.Setenv("WATCHDOG_USEC", "400000")
	t.Setenv("WATCHDOG_PID", "")
	os.Unsetenv("WATCHDOG_PID")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	a := metered(t, dir, "state", freeAddress(t), nil, io.Discard)
	done := make(chan error, 1)
	go func() { done <- a.RunAlone(ctx) }()
	if err := l.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	next := func(want string) {
		t.Helper()
		for {
			b := make([]byte, 4096)
			n, err := l.Read(b)
			if err != nil {
				t.Fatalf("waiting for %s: %v", want, err)
			}
			if strings.HasPrefix(string(b[:n]), want) {
				return
			}
		}
	}
	next("READY=1")
	next("STATUS=not ready: no runtime is attached")
	next("WATCHDOG=1")
	next("WATCHDOG=1")
	stop()
	next("STOPPING=1")
	if err := <-done; err != nil {
		t.Error(err)
	}
}
