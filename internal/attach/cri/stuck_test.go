package cri_test

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/attach/cri"
)

// stuck opens a connection, sends requests until the other side reads nothing more, and reads no answers.
func stuck(t *testing.T, socket string) {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	settings := bytes.Repeat([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}, 1000) // each frame is acknowledged
	for err == nil {
		_ = conn.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
		_, err = conn.Write(settings)
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("it is not full: %v", err)
	}
}

// TestCallerReadsNothing: a kubelet or proxy that stops reading does not keep the agent from ending and
// handing over its socket.
func TestCallerReadsNothing(t *testing.T) {
	for name, hooked := range map[string]bool{"proxy": false, "hook server": true} {
		t.Run(name, func(t *testing.T) {
			g := &rig{t: t, dir: t.TempDir(), h: newHandler()}
			g.runtime = startRuntime(t, filepath.Join(t.TempDir(), "r.sock"))
			o := g.options(false)
			if hooked {
				o.Socket, o.Hooks = "", &cri.HookService{Socket: g.socket()}
			}
			g.attachWith(o)
			for range 3 {
				stuck(t, g.socket())
			}
			if !hooked {
				g.runPod() // others are served
			}
			ended := make(chan struct{})
			start := time.Now()
			go func() { defer close(ended); g.stop() }()
			select {
			case <-ended:
				t.Logf("it took %v", time.Since(start))
			case <-time.After(time.Minute):
				t.Fatal("it hangs")
			}
		})
	}
}
