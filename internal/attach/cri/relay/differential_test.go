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

	"github.com/trimtab/trimtab/internal/attach/cri/relay"
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

// calls are made three ways, and must look the same to the caller and to the
// backend: direct, relayed, and relayed with every call held and let go.
var calls = []struct {
	name string
	make func(t *testing.T, c *grpc.ClientConn, b *backend) string
}{
	{"unary", func(t *testing.T, c *grpc.ClientConn, _ *backend) string {
		return unary(bounded(t), c, "Echo", []byte("hello"))
	}},
	{"empty message", func(t *testing.T, c *grpc.ClientConn, _ *backend) string { return unary(bounded(t), c, "Echo", nil) }},
	{"metadata both ways", func(t *testing.T, c *grpc.ClientConn, _ *backend) string {
		ctx := metadata.AppendToOutgoingContext(bounded(t), "x-trace", "00-abc-def-01", "x-bin-bin", "\x00\x01\xfe", "x-many", "a", "x-many", "b")
		return unary(ctx, c, "Echo", []byte("m"))
	}},
	{"headers of many frames", func(t *testing.T, c *grpc.ClientConn, _ *backend) string {
		ctx := metadata.AppendToOutgoingContext(bounded(t), "x-long", string(bytes.Repeat([]byte("long "), 8000)))
		return unary(ctx, c, "Echo", []byte("m")) + unary(ctx, c, "Echo", []byte("again"))
	}},
	{"unknown method", func(t *testing.T, c *grpc.ClientConn, _ *backend) string {
		return unary(bounded(t), c, "NotYetInvented", []byte("x"))
	}},
	{"gzip", func(t *testing.T, c *grpc.ClientConn, b *backend) string {
		got := unary(bounded(t), c, "Echo", some(100_000), grpc.UseCompressor(gzip.Name))
		b.mu.Lock()
		defer b.mu.Unlock()
		return got + fmt.Sprint(b.wire)
	}},
	{"16 MiB there", func(t *testing.T, c *grpc.ClientConn, _ *backend) string {
		return unary(bounded(t), c, "Echo", some(16<<20-200))
	}},
	{"16 MiB back", func(t *testing.T, c *grpc.ClientConn, _ *backend) string { return unary(bounded(t), c, "Big", nil) }},
	{"a message the backend does not take", func(t *testing.T, c *grpc.ClientConn, _ *backend) string {
		return unary(bounded(t), c, "Echo", some(big+1), grpc.MaxCallSendMsgSize(2*big))
	}},
	{"trailers-only error with details", func(t *testing.T, c *grpc.ClientConn, _ *backend) string {
		return unary(bounded(t), c, "Error", []byte("x"))
	}},
	{"an early answer", func(t *testing.T, c *grpc.ClientConn, _ *backend) string {
		s, err := stream(bounded(t), c, "Early")
		if err != nil {
			return err.Error()
		}
		return rest(s)
	}},
	{"deadline told", func(t *testing.T, c *grpc.ClientConn, _ *backend) string {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		return unary(ctx, c, "Deadline", nil)
	}},
	{"deadline met", func(t *testing.T, c *grpc.ClientConn, b *backend) string {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		st := status.Convert(c.Invoke(ctx, "/some.Service/Hang", &[]byte{}, &[]byte{}))
		<-b.cancelled // by the caller or by its own clock
		return st.Code().String()
	}},
	{"cancel", func(t *testing.T, c *grpc.ClientConn, b *backend) string {
		ctx, cancel := context.WithCancel(bounded(t))
		defer cancel()
		s, err := stream(ctx, c, "Hang")
		if err != nil {
			return err.Error()
		}
		_ = s.SendMsg(&[]byte{'m'})
		_ = s.CloseSend()
		eventually(t, func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.seen) > 0 })
		cancel()
		return rest(s) + <-b.cancelled
	}},
	{"event stream", func(t *testing.T, c *grpc.ClientConn, _ *backend) string {
		s, err := stream(bounded(t), c, "Events")
		if err != nil {
			return err.Error()
		}
		_ = s.SendMsg(new(make([]byte, 500)))
		_ = s.CloseSend()
		return rest(s)
	}},
	{"half-close", func(t *testing.T, c *grpc.ClientConn, _ *backend) string {
		s, err := stream(bounded(t), c, "Both")
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
	{"half-close without a message", func(t *testing.T, c *grpc.ClientConn, _ *backend) string {
		s, err := stream(bounded(t), c, "Both")
		if err != nil {
			return err.Error()
		}
		_ = s.CloseSend()
		return rest(s)
	}},
}

func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never happened")
		}
	}
}

func TestSameAsDirect(t *testing.T) {
	b := startBackend(t, filepath.Join(t.TempDir(), "b.sock"))
	hold := func(string) relay.Hook {
		return func(context.Context, []byte) relay.Verdict { return relay.Verdict{} }
	}
	ways := []struct {
		name string
		conn *grpc.ClientConn
	}{
		{"relayed", dial(t, startProxy(t, b.path, relay.Options{}).path)},
		{"held", dial(t, startProxy(t, b.path, relay.Options{Pick: hold}).path)},
		{"held, as far as a small bound", dial(t, startProxy(t, b.path, relay.Options{Pick: hold, MaxMessage: 50_000}).path)},
	}
	direct := dial(t, b.path)
	for _, c := range calls {
		t.Run(c.name, func(t *testing.T) {
			b.told()
			want := c.make(t, direct, b)
			seen := b.told()
			t.Logf("%.300s", want)
			for _, w := range ways {
				if d := cmp.Diff(want, c.make(t, w.conn, b)); d != "" {
					t.Errorf("%s differs from direct (-direct +%s):\n%s", w.name, w.name, d)
				}
				if d := cmp.Diff(seen, b.told()); d != "" {
					t.Errorf("the backend saw another thing when %s:\n%s", w.name, d)
				}
			}
		})
	}
}
