package relay_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/attach/relay"
)

// pair returns the two ends of a Unix connection.
func pair(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	l, path := listen(t)
	theirs, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if ours, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = theirs.Close(); _ = ours.Close() })
	return ours, theirs
}

// flood writes HTTP/2 frames of an unknown type until the other end stops reading.
func flood(conn net.Conn, first string) {
	frame := append([]byte{0, 64, 0, 0xfa, 0, 0, 0, 0, 0}, make([]byte, 64<<8)...)
	_, err := conn.Write([]byte(first))
	for err == nil {
		_, err = conn.Write(frame)
	}
}

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// stuck is a relayed connection: one end reads nothing, while the other sends until all buffers are full.
func stuck(t *testing.T, reader string, o relay.Options) (c *relay.Conn, ended chan error, stop context.CancelFunc) {
	t.Helper()
	caller, kubelet := pair(t)
	backend, runtime := pair(t)
	c = relay.New(caller, backend, o)
	ctx, stop := context.WithCancel(t.Context())
	ended = make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	sent := make(chan struct{})
	switch reader {
	case "caller":
		if _, err := kubelet.Write([]byte(preface)); err != nil {
			t.Fatal(err)
		}
		go func() { defer close(sent); flood(runtime, "") }()
	case "backend":
		go func() { defer close(sent); flood(kubelet, preface) }()
	case "backend of no HTTP/2":
		go func() { defer close(sent); flood(kubelet, strings.Repeat("x", 100)) }()
	}
	t.Cleanup(func() { _ = kubelet.Close(); _ = runtime.Close(); <-sent })
	// The buffers are full: the next write blocks.
	from := runtime
	if reader != "caller" {
		from = kubelet
	}
	fillSocket(t, from)
	return c, ended, stop
}

// fillSocket writes until the connection's buffers are full, and another write blocks.
func fillSocket(t *testing.T, conn net.Conn) {
	t.Helper()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for still, last := 0, -1; still < 20; {
		now := queued(t, raw)
		if still++; now != last || now == 0 {
			still, last = 0, now
		}
		time.Sleep(2 * time.Millisecond) // between two polls of the queue
	}
}

// TestStuck: the relay gives up an end that reads nothing after a while, and the error says which end. It
// does not delay a hand-over.
func TestStuck(t *testing.T) {
	for _, reader := range []string{"caller", "backend", "backend of no HTTP/2"} {
		t.Run(reader, func(t *testing.T) {
			_, ended, stop := stuck(t, reader, relay.Options{WriteTimeout: 300 * time.Millisecond})
			defer stop()
			select {
			case err := <-ended:
				if who, _, _ := strings.Cut(reader, " "); err == nil || !strings.Contains(err.Error(), who+" does not read") {
					t.Errorf("%v", err)
				}
			case <-time.After(time.Minute):
				t.Fatal("it hangs")
			}
		})
		t.Run(reader+", draining", func(t *testing.T) {
			c, ended, stop := stuck(t, reader, relay.Options{WriteTimeout: time.Hour})
			defer stop()
			start := time.Now()
			c.Drain()
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Fatal("it hangs")
			}
		})
	}
}
