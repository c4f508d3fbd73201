package relay_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding/gzip"

	"github.com/trimtab/trimtab/internal/attach/relay"
)

// TestHalf: an end that sends a part of a frame and stops, or sends the rest byte by byte, is disconnected
// after a while.
func TestHalf(t *testing.T) {
	half := relay.Options{WriteTimeout: 200 * time.Millisecond}
	drip := func(conn net.Conn, b []byte) {
		for range 1000 {
			if _, err := conn.Write(b); err != nil {
				return
			}
			time.Sleep(20 * time.Millisecond) // the pace of a slow sender
		}
	}
	for name, drop := range map[string]func(e *end){
		"a frame":               func(e *end) { e.raw([]byte{0, 0x40, 0, 0, 0, 0}) },
		"a frame, drop by drop": func(e *end) { e.raw([]byte{0, 0x40, 0, 0, 0, 0, 0, 0, 1}); drip(e.conn, []byte{0}) },
		"a header block": func(e *end) {
			e.try(e.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: e.request()}))
		},
		"a header block, frame by frame": func(e *end) {
			e.try(e.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: e.request()}))
			drip(e.conn, []byte{0, 0, 0, 9, 0, 0, 0, 0, 1})
		},
	} {
		t.Run("caller, "+name, func(t *testing.T) {
			caller, _, ran := ends(t, half)
			drop(caller)
			caller.goesAway(http2.ErrCodeEnhanceYourCalm)
			if err := <-ran; err == nil || !strings.Contains(err.Error(), "caller: a frame or header block did not arrive in time") {
				t.Error(err)
			}
		})
		t.Run("backend, "+name, func(t *testing.T) {
			_, backend, ran := ends(t, half)
			drop(backend)
			backend.goesAway(http2.ErrCodeEnhanceYourCalm)
			if err := <-ran; err == nil || !strings.Contains(err.Error(), "backend: a frame or header block did not arrive in time") {
				t.Error(err)
			}
		})
	}
	for _, first := range []string{"", preface[:10]} {
		t.Run(fmt.Sprintf("%q of the preface", first), func(t *testing.T) {
			ours, theirs := pair(t)
			backend, _ := pair(t)
			caller := newEnd(t, theirs)
			ran := make(chan error, 1)
			go func() { ran <- relay.New(ours, backend, half).Run(context.WithoutCancel(t.Context())) }()
			caller.raw([]byte(first))
			caller.goesAway(http2.ErrCodeEnhanceYourCalm)
			<-ran
		})
	}
}

// TestNoWindow: if a backend grants no window after a first, held message, other calls of the connection
// wait for a while.
func TestNoWindow(t *testing.T) {
	hook := func(context.Context, []byte) relay.Verdict { return relay.Verdict{} }
	first := relay.Handling{Hook: hook}
	caller, backend, ran := ends(t, relay.Options{WriteTimeout: time.Second, HandlingFor: func(string) (held relay.Handling) {
		held, first = first, held
		return held
	}})
	caller.open(1, false)
	message := make([]byte, 5+3*(16<<10))
	message[3] = 3 << 14 >> 8
	for part := range slices.Chunk(message, 16<<10) {
		caller.try(caller.WriteData(1, false, part))
		if len(part) == 16<<10 {
			caller.until("a window", func(f http2.Frame) bool {
				return f.Header().Type == http2.FrameWindowUpdate && f.Header().StreamID == 0
			})
		}
	}
	got := uint32(0)
	backend.until("the message", func(f http2.Frame) bool {
		if f.Header().Type == http2.FrameData {
			got += f.Header().Length
		}
		return got == uint32(len(message))
	})
	go func() { _, _ = io.Copy(io.Discard, backend.conn) }()
	caller.open(3, false)
	for range 2 {
		caller.try(caller.WriteData(3, false, make([]byte, 16<<10)))
	}
	select {
	case err := <-ran:
		if err == nil || !strings.Contains(err.Error(), "backend does not read") {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it hangs")
	}
}

// TestSlowly: whole frames may arrive at any pace, and calls may last long. The clock is that of synctest,
// so the pauses take no time.
func TestSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipe := func(*testing.T) (ours, theirs net.Conn) { return net.Pipe() }
		caller, backend, ran := endsOver(t, pipe, relay.Options{WriteTimeout: time.Second, IdleTimeout: time.Second})
		caller.open(1, false)
		backend.until("the call", func(f http2.Frame) bool { return f.Header().Type == http2.FrameHeaders })
		for range 3 {
			time.Sleep(3 * time.Second)
			caller.try(caller.WriteData(1, false, []byte{0, 0, 0, 0, 0}))
			backend.until("a message", func(f http2.Frame) bool { return f.Header().Type == http2.FrameData })
			backend.try(backend.WritePing(false, [8]byte{}))
			caller.until("a ping", func(f http2.Frame) bool { return f.Header().Type == http2.FramePing })
		}
		synctest.Wait()
		select {
		case err := <-ran:
			t.Fatalf("it ended: %v", err)
		default:
		}
	})
}

// TestIdle: the relay asks the caller to end a connection without calls after a while, and then ends it. A
// grpc-go caller does not notice.
func TestIdle(t *testing.T) {
	idle := relay.Options{IdleTimeout: 600 * time.Millisecond, WriteTimeout: 300 * time.Millisecond}
	caller, backend, ran := ends(t, idle)
	backend.answers()
	for stream := uint32(1); stream < 10; stream += 2 { // calls that end, each in another way
		switch caller.open(stream, stream != 3); stream {
		case 3:
			caller.try(caller.WriteRSTStream(3, http2.ErrCodeCancel))
		case 5:
			backend.try(backend.WriteRSTStream(5, http2.ErrCodeCancel))
		}
	}
	caller.open(11, false)
	start := time.Now()
	backend.try(backend.WriteGoAway(9, http2.ErrCodeNo, nil)) // stream 11 has no call
	caller.until("GOAWAY of the backend", func(f http2.Frame) bool { return f.Header().Type == http2.FrameGoAway })
	caller.goesAway(http2.ErrCodeNo)
	if err := <-ran; err != nil || time.Since(start) < 600*time.Millisecond {
		t.Errorf("%v after %v", err, time.Since(start))
	}

	b := startBackend(t, filepath.Join(t.TempDir(), "b.sock"))
	p := startProxy(t, b.path, idle)
	c := dial(t, p.path)
	again := func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.conns) > 1
	}
	for i := range 40 {
		if got := unary(bounded(t), c, "Echo", []byte("m")); !strings.HasPrefix(got, `"m" OK`) {
			t.Fatalf("call %d: %s", i, got)
		}
		if again() {
			return
		}
		time.Sleep(time.Duration(i) * 300 * time.Millisecond) // around the limit that the test checks
	}
	t.Error("one connection all the time")
}

// TestKept: messages that wait for a verdict have a limit of bytes; a compressed message counts with its
// size when decompressed.
func TestKept(t *testing.T) {
	for name, o := range map[string][]grpc.CallOption{"plain": nil, "gzip": {grpc.UseCompressor(gzip.Name)}} {
		t.Run(name, func(t *testing.T) {
			asked, release := make(chan bool, 10), make(chan bool)
			c, _, _ := held(t, picking("Deadline", func(context.Context, []byte) relay.Verdict {
				asked <- true
				<-release
				return relay.Verdict{}
			}))
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			answers := make(chan string, 10)
			var all sync.WaitGroup
			large := make([]byte, 15<<20) // of 64 MiB
			for range 4 {
				all.Go(func() { answers <- unary(ctx, c, "Deadline", large, o...) })
				<-asked
			}
			got := unary(ctx, c, "Deadline", large, o...)
			if !strings.Contains(got, "ResourceExhausted") || !strings.Contains(got, "holds too many bytes") {
				t.Errorf("the fifth: %.200s", got)
			}
			close(release)
			all.Wait()
			for range 4 {
				if got := <-answers; !strings.HasPrefix(got, `"true, `) {
					t.Errorf("one of four: %.200s", got)
				}
			}
			if got := unary(ctx, c, "Deadline", large, o...); !strings.HasPrefix(got, `"true, `) {
				t.Errorf("afterwards: %.200s", got)
			}
		})
	}
}

// TestOtherProtocol: a protocol other than HTTP/2 passes both ways.
func TestOtherProtocol(t *testing.T) {
	for _, request := range []string{"GET /info HTTP/1.1\r\nHost: x\r\n\r\n", "PRI\r\n", "x"} {
		ours, theirs := pair(t)
		backend, runtime := pair(t)
		ran := make(chan error, 1)
		go func() { ran <- relay.New(ours, backend, relay.Options{}).Run(context.WithoutCancel(t.Context())) }()
		caller, server := newEnd(t, theirs), newEnd(t, runtime)
		caller.raw([]byte(request))
		for _, way := range []struct {
			from, to net.Conn
			text     string
		}{{nil, server.conn, request}, {server.conn, caller.conn, "HTTP/1.1 200 OK\r\n\r\n"}, {caller.conn, server.conn, "more"}} {
			if way.from != nil {
				if _, err := way.from.Write([]byte(way.text)); err != nil {
					t.Fatal(err)
				}
			}
			b := make([]byte, 100)
			if n, err := way.to.Read(b); err != nil || string(b[:n]) != way.text {
				t.Errorf("%q, %v, want %q", b[:n], err, way.text)
			}
		}
		_ = runtime.Close()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	}
}
