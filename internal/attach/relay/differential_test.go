package relay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/trimtab/trimtab/internal/attach/relay"
)

func some(n int) []byte { return bytes.Repeat([]byte("some \x00\xff bytes."), n/13+1)[:n] }

// stream opens a call of any kind.
func stream(ctx context.Context, c *grpc.ClientConn, method string) (grpc.ClientStream, error) {
	return c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/some.Service/"+method)
}

// rest receives until the end.
func rest(s grpc.ClientStream) string {
	out := ""
	for {
		var m []byte
		if err := s.RecvMsg(&m); err != nil {
			if errors.Is(err, io.EOF) {
				return fmt.Sprintf("%s end, trailer %v", out, map[string][]string(s.Trailer()))
			}
			return fmt.Sprintf("%s %v", out, status.Convert(err))
		}
		out += digest(m) + ";"
	}
}

// one is a test's connection to the backend.
type one struct {
	t *testing.T
	c *grpc.ClientConn
	b *backend
}

// Calls are made in three ways and must look the same to caller and backend: direct, relayed, and relayed
// with every call held and released.
var calls = []struct {
	name string
	make func(w one) string
}{
	{"unary", func(w one) string {
		return unary(bounded(w.t), w.c, "Echo", []byte("hello"))
	}},
	{"empty message", func(w one) string { return unary(bounded(w.t), w.c, "Echo", nil) }},
	{"metadata both ways", func(w one) string {
		ctx := metadata.AppendToOutgoingContext(bounded(w.t), "x-trace", "00-abc-def-01", "x-bin-bin", "\x00\x01\xfe", "x-many", "a", "x-many", "b")
		return unary(ctx, w.c, "Echo", []byte("m"))
	}},
	{"headers of many frames", func(w one) string {
		ctx := metadata.AppendToOutgoingContext(bounded(w.t), "x-long", string(bytes.Repeat([]byte("long "), 8000)))
		return unary(ctx, w.c, "Echo", []byte("m")) + unary(ctx, w.c, "Echo", []byte("again"))
	}},
	{"unknown method", func(w one) string {
		return unary(bounded(w.t), w.c, "NotYetInvented", []byte("x"))
	}},
	{"gzip", func(w one) string {
		got := unary(bounded(w.t), w.c, "Echo", some(100_000), grpc.UseCompressor(gzip.Name))
		w.b.mu.Lock()
		defer w.b.mu.Unlock()
		return got + fmt.Sprint(w.b.wire)
	}},
	{"16 MiB there", func(w one) string {
		return unary(bounded(w.t), w.c, "Echo", some(16<<20-200))
	}},
	{"16 MiB back", func(w one) string { return unary(bounded(w.t), w.c, "Big", nil) }},
	{"a message the backend does not take", func(w one) string {
		return unary(bounded(w.t), w.c, "Echo", some(big+1), grpc.MaxCallSendMsgSize(2*big))
	}},
	{"trailers-only error with details", func(w one) string {
		return unary(bounded(w.t), w.c, "Error", []byte("x"))
	}},
	{"an early answer", func(w one) string {
		s, err := stream(bounded(w.t), w.c, "Early")
		if err != nil {
			return err.Error()
		}
		return rest(s)
	}},
	{"deadline told", func(w one) string {
		ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Minute)
		defer cancel()
		return unary(ctx, w.c, "Deadline", nil)
	}},
	{"deadline met", func(w one) string {
		ctx, cancel := context.WithTimeout(w.t.Context(), 50*time.Millisecond)
		defer cancel()
		st := status.Convert(w.c.Invoke(ctx, "/some.Service/Hang", &[]byte{}, &[]byte{}))
		<-w.b.cancelled // by the caller, or by the server's own deadline
		return st.Code().String()
	}},
	{"cancel", func(w one) string {
		ctx, cancel := context.WithCancel(bounded(w.t))
		defer cancel()
		s, err := stream(ctx, w.c, "Hang")
		if err != nil {
			return err.Error()
		}
		_ = s.SendMsg(&[]byte{'m'})
		_ = s.CloseSend()
		eventually(w.t, func() bool { w.b.mu.Lock(); defer w.b.mu.Unlock(); return len(w.b.seen) > 0 })
		cancel()
		return rest(s) + <-w.b.cancelled
	}},
	{"event stream", func(w one) string {
		s, err := stream(bounded(w.t), w.c, "Events")
		if err != nil {
			return err.Error()
		}
		_ = s.SendMsg(new(make([]byte, 500)))
		_ = s.CloseSend()
		return rest(s)
	}},
	{"half-close", func(w one) string {
		s, err := stream(bounded(w.t), w.c, "Both")
		if err != nil {
			return err.Error()
		}
		out := ""
		for _, n := range []int{1, 70_000, 0, 300_000} {
			var m []byte
			if err := errors.Join(s.SendMsg(new(some(n))), s.RecvMsg(&m)); err != nil {
				return err.Error()
			}
			out += digest(m) + ";"
		}
		_ = s.CloseSend()
		return out + rest(s)
	}},
	{"half-close without a message", func(w one) string {
		s, err := stream(bounded(w.t), w.c, "Both")
		if err != nil {
			return err.Error()
		}
		_ = s.CloseSend()
		return rest(s)
	}},
}

func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never happened")
		}
	}
}

func TestSameAsDirect(t *testing.T) {
	b := startBackend(t, filepath.Join(t.TempDir(), "b.sock"))
	hook := func(context.Context, []byte) relay.Verdict { return relay.Verdict{} }
	hold := func(string) relay.Handling { return relay.Handling{Hook: hook} }
	quick := func(string) relay.Handling { return relay.Handling{Hook: hook, RunsInline: true} }
	ways := []struct {
		name string
		conn *grpc.ClientConn
	}{
		{"relayed", dial(t, startProxy(t, b.path, relay.Options{}).path)},
		{"held", dial(t, startProxy(t, b.path, relay.Options{HandlingFor: hold}).path)},
		{"held quickly", dial(t, startProxy(t, b.path, relay.Options{HandlingFor: quick}).path)},
		{"held, as far as a small bound", dial(t, startProxy(t, b.path, relay.Options{HandlingFor: hold, MaxMessage: 50_000}).path)},
	}
	direct := dial(t, b.path)
	for _, c := range calls {
		t.Run(c.name, func(t *testing.T) {
			b.told()
			want := c.make(one{t, direct, b})
			seen := b.told()
			t.Logf("%.300s", want)
			for _, w := range ways {
				if d := cmp.Diff(want, c.make(one{t, w.conn, b})); d != "" {
					t.Errorf("%s differs from direct (-direct +%s):\n%s", w.name, w.name, d)
				}
				if d := cmp.Diff(seen, b.told()); d != "" {
					t.Errorf("the backend saw another thing when %s:\n%s", w.name, d)
				}
			}
		})
	}
}
