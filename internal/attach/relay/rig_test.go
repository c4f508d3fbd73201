package relay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // registers the compressor of the gzip calls
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/trimtab/trimtab/internal/attach/relay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// raw is a codec without encoding: messages are bytes.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (raw) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), b...)
	return nil
}

func (raw) Name() string { return "proto" }

var _ encoding.Codec = raw{}

// backend is a gRPC server without services: the last part of a call's path selects its behaviour.
type backend struct {
	path string
	srv  *grpc.Server

	mu        sync.Mutex
	seen      []string // "method: message", as far as received
	wire      []string // compressed and plain sizes of messages
	cancelled chan string
}

const big = 17 << 20

func startBackend(t testing.TB, path string) *backend {
	t.Helper()
	b := &backend{path: path, cancelled: make(chan string, 100)}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	b.srv = grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(b.handle),
		grpc.MaxRecvMsgSize(big), grpc.MaxSendMsgSize(big), grpc.StatsHandler((*sizes)(b)))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.srv.Serve(l)
	}()
	t.Cleanup(func() {
		b.srv.Stop()
		<-done
	})
	return b
}

// sizes notes which messages were compressed.
type sizes backend

func (*sizes) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*sizes) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*sizes) HandleConn(context.Context, stats.ConnStats)                       {}

func (s *sizes) HandleRPC(_ context.Context, r stats.RPCStats) {
	if in, ok := r.(*stats.InPayload); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.wire = append(s.wire, fmt.Sprintf("compressed %v, %d bytes", in.CompressedLength != in.Length, in.Length))
	}
}

func (b *backend) note(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = append(b.seen, fmt.Sprintf(format, args...))
}

// told returns the notes and clears them.
func (b *backend) told() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.seen
	b.seen, b.wire = nil, nil
	return out
}

func digest(m []byte) string {
	if len(m) < 100 {
		return fmt.Sprintf("%q", m)
	}
	sum := 0
	for i, c := range m {
		sum += int(c) * (i%251 + 1)
	}
	return fmt.Sprintf("%d bytes, sum %d", len(m), sum)
}

func (b *backend) handle(_ any, s grpc.ServerStream) error {
	path, _ := grpc.MethodFromServerStream(s)
	method := path[strings.LastIndexByte(path, '/')+1:]
	md, _ := metadata.FromIncomingContext(s.Context())
	head := metadata.MD{}
	for k, v := range md {
		if strings.HasPrefix(k, "x-") {
			head[k] = v
		}
	}
	switch method {
	case "Echo":
		var m []byte
		if err := s.RecvMsg(&m); err != nil {
			return err
		}
		b.note("%s: %s", method, digest(m))
		_ = s.SetHeader(head)
		s.SetTrailer(metadata.Pairs("x-trailer-bin", "\x00\xff", "x-trailer", "end"))
		return s.SendMsg(&m)
	case "Error": // trailers only
		var m []byte
		if err := s.RecvMsg(&m); err != nil {
			return err
		}
		b.note("%s: %s", method, digest(m))
		st, err := status.New(codes.ResourceExhausted, "no room: 100% full\nfür alle").WithDetails(durationpb.New(time.Minute))
		if err != nil {
			return err
		}
		return st.Err()
	case "Early": // an answer before the complete request
		return status.Error(codes.PermissionDenied, "not you")
	case "Deadline":
		var m []byte
		if err := s.RecvMsg(&m); err != nil {
			return err
		}
		at, ok := s.Context().Deadline()
		m = fmt.Appendf(nil, "%v, %v", ok, time.Until(at).Round(time.Minute))
		return s.SendMsg(&m)
	case "Hang":
		var m []byte
		if err := s.RecvMsg(&m); err != nil {
			return err
		}
		b.note("%s: %s", method, digest(m))
		<-s.Context().Done()
		b.cancelled <- s.Context().Err().Error()
		return s.Context().Err()
	case "Events": // as many messages as the request has bytes
		var m []byte
		if err := s.RecvMsg(&m); err != nil {
			return err
		}
		for i := range len(m) {
			e := fmt.Appendf(nil, "event %d", i)
			if err := s.SendMsg(&e); err != nil {
				return err
			}
		}
		return nil
	case "Both": // answers each message, and sums up when the caller ends
		n := 0
		for {
			var m []byte
			err := s.RecvMsg(&m)
			if errors.Is(err, io.EOF) {
				m = fmt.Appendf(nil, "%d in all", n)
				return s.SendMsg(&m)
			}
			if err != nil {
				return err
			}
			n++
			if err := s.SendMsg(&m); err != nil {
				return err
			}
		}
	case "Big":
		var m []byte
		if err := s.RecvMsg(&m); err != nil {
			return err
		}
		out := make([]byte, 16<<20-100)
		for i := range out {
			out[i] = byte(i * 7)
		}
		return s.SendMsg(&out)
	}
	return status.Errorf(codes.Unimplemented, "unknown method %s", method)
}

// proxy relays one socket to another.
type proxy struct {
	path, to string
	o        relay.Options

	mu    sync.Mutex
	conns []*relay.Conn
	errs  []error
}

func startProxy(t testing.TB, to string, o relay.Options) *proxy {
	t.Helper()
	p := &proxy{path: filepath.Join(t.TempDir(), "p.sock"), to: to, o: o}
	l, err := net.Listen("unix", p.path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.serve(ctx, c) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		all.Wait()
		for _, err := range p.errs {
			t.Errorf("relay: %v", err)
		}
	})
	return p
}

func (p *proxy) serve(ctx context.Context, caller net.Conn) {
	b, err := net.Dial("unix", p.to)
	if err != nil {
		_ = caller.Close()
		return
	}
	c := relay.New(caller, b, p.o)
	p.mu.Lock()
	p.conns = append(p.conns, c)
	p.mu.Unlock()
	if err := c.Run(ctx); err != nil {
		p.mu.Lock()
		p.errs = append(p.errs, err)
		p.mu.Unlock()
	}
}

func dial(t testing.TB, path string) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(big), grpc.MaxCallSendMsgSize(big)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// unary makes one call and returns everything that is visible of its answer.
func unary(ctx context.Context, c *grpc.ClientConn, method string, msg []byte, o ...grpc.CallOption) string {
	var out []byte
	var head, trail metadata.MD
	err := c.Invoke(ctx, "/some.Service/"+method, &msg, &out, append(o, grpc.Header(&head), grpc.Trailer(&trail))...)
	st := status.Convert(err)
	return fmt.Sprintf("%s %v %q %v head %v trailer %v", digest(out), st.Code(), st.Message(), st.Proto().GetDetails(), map[string][]string(head), map[string][]string(trail))
}

func listen(t testing.TB) (net.Listener, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "l.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, path
}
