package relay_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/attach/relay"
)

// picking holds the calls of one method.
func picking(method string, h relay.Hook) relay.HandlingFunc {
	return func(path string) relay.Handling {
		if strings.HasSuffix(path, "/"+method) {
			return relay.Handling{Hook: h}
		}
		return relay.Handling{}
	}
}

// quickly is picking with a quick hook, which the reading goroutine runs.
func quickly(method string, h relay.Hook) relay.HandlingFunc {
	return func(path string) relay.Handling {
		k := picking(method, h)(path)
		k.RunsInline = true
		return k
	}
}

func held(t *testing.T, pick relay.HandlingFunc) (*grpc.ClientConn, *backend, *proxy) {
	t.Helper()
	b := startBackend(t, filepath.Join(t.TempDir(), "b.sock"))
	p := startProxy(t, b.path, relay.Options{HandlingFor: pick})
	return dial(t, p.path), b, p
}

func TestChangedMessage(t *testing.T) {
	c, b, _ := held(t, picking("Echo", func(_ context.Context, m []byte) relay.Verdict {
		return relay.Verdict{Message: append(bytes.ToUpper(m), '!')}
	}))
	changes(t, c, b, "HELLO!")
	s, err := stream(bounded(t), c, "Both") // not held
	if err != nil {
		t.Fatal(err)
	}
	_ = s.SendMsg(&[]byte{'x'})
	_ = s.CloseSend()
	if got := rest(s); !strings.HasPrefix(got, `"x";"1 in all";`) {
		t.Errorf("a call that the relay does not hold: %s", got)
	}
}

// changes makes calls with "hello", which become another message, uncompressed and compressed.
func changes(t *testing.T, c *grpc.ClientConn, b *backend, want string) {
	t.Helper()
	for _, o := range [][]grpc.CallOption{nil, {grpc.UseCompressor(gzip.Name)}} {
		if got := unary(bounded(t), c, "Echo", []byte("hello"), o...); !strings.HasPrefix(got, digest([]byte(want))+" OK") {
			t.Errorf("answer %s", got)
		}
		if got := fmt.Sprint(b.told()); got != "[Echo: "+digest([]byte(want))+"]" {
			t.Errorf("backend saw %s", got)
		}
	}
}

// TestMore: hooks return messages with an appended part, also quick hooks.
func TestMore(t *testing.T) {
	more := strings.Repeat("more", 10_000)
	for name, want := range map[string]struct {
		verdict relay.Verdict
		becomes string
	}{
		"nothing": {relay.Verdict{}, "hello"},
		"little":  {relay.Verdict{Appended: []byte("!")}, "hello!"},
		"much":    {relay.Verdict{Appended: []byte(more)}, "hello" + more},
		"another": {relay.Verdict{Message: []byte("x"), Appended: []byte("!")}, "x"},
	} {
		for how, pick := range map[string]func(string, relay.Hook) relay.HandlingFunc{"held": picking, "held quickly": quickly} {
			t.Run(name+" "+how, func(t *testing.T) {
				var outcomes atomic.Int32
				c, b, _ := held(t, pick("Echo", func(context.Context, []byte) relay.Verdict {
					v := want.verdict
					v.OnOutcome = func(o relay.Outcome) {
						if o.Sent && o.Answered && string(o.Message) == want.becomes {
							outcomes.Add(1)
						}
					}
					return v
				}))
				changes(t, c, b, want.becomes)
				if n := outcomes.Load(); n != 2 {
					t.Errorf("%d of 2 outcomes were reported", n)
				}
			})
		}
	}
}

// TestOtherSizes makes messages longer and shorter, many at a time on one connection: flow-control windows
// must neither become empty nor overflow.
func TestOtherSizes(t *testing.T) {
	b := startBackend(t, filepath.Join(t.TempDir(), "b.sock"))
	rapid.Check(t, func(r *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(0, 300_000), 1, 6).Draw(r, "sizes")
		becomes := rapid.SliceOfN(rapid.IntRange(0, 300_000), len(sizes), len(sizes)).Draw(r, "becomes")
		p := startProxy(t, b.path, relay.Options{HandlingFor: picking("Echo", func(_ context.Context, m []byte) relay.Verdict {
			var i int
			_, _ = fmt.Sscanf(string(m[:min(len(m), 8)]), "%d", &i)
			return relay.Verdict{Message: some(becomes[i])}
		})})
		c := dial(t, p.path)
		ctx := bounded(t)
		var all sync.WaitGroup
		for i, n := range sizes {
			for range 3 {
				all.Go(func() {
					got := unary(ctx, c, "Echo", append(fmt.Appendf(nil, "%8d", i), some(n)...))
					if want := digest(some(becomes[i])) + " OK"; !strings.HasPrefix(got, want) {
						t.Errorf("%d bytes became %.100s, want %s", n, got, want)
					}
					plain := some(n)
					if got := unary(ctx, c, "NotHeld", plain); !strings.Contains(got, "unknown method NotHeld") {
						t.Errorf("beside it: %.100s", got)
					}
				})
			}
		}
		all.Wait()
		_ = c.Close()
	})
}

func TestRefused(t *testing.T) {
	const text = "trimtab: no: 100 %, für alle\n"
	var outcomes atomic.Int32
	c, b, _ := held(t, picking("Echo", func(context.Context, []byte) relay.Verdict {
		return relay.Verdict{
			Refuse: &relay.Status{Code: codes.FailedPrecondition, Text: text},
			OnOutcome: func(o relay.Outcome) {
				if !o.Sent && !o.Answered {
					outcomes.Add(1)
				}
			},
		}
	}))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 20 {
				ctx := bounded(t)
				st := status.Convert(c.Invoke(ctx, "/some.Service/Echo", new(some(i*1000)), new([]byte)))
				if st.Code() != codes.FailedPrecondition || st.Message() != text {
					t.Errorf("refused with %v %q", st.Code(), st.Message())
				}
				if got := unary(ctx, c, "Error", []byte("m")); !strings.Contains(got, "ResourceExhausted") {
					t.Errorf("beside it: %s", got)
				}
			}
		})
	}
	all.Wait()
	eventually(t, func() bool { return outcomes.Load() == 160 }) // reported after the caller has got its answer
	for _, s := range b.told() {
		if strings.HasPrefix(s, "Echo") {
			t.Fatalf("the backend saw %s", s)
		}
	}
}

// TestRefusedTooLate: if the backend answers before the refusal, its answer counts.
func TestRefusedTooLate(t *testing.T) {
	c, _, _ := held(t, picking("Early", func(ctx context.Context, _ []byte) relay.Verdict {
		<-ctx.Done()
		return relay.Verdict{Refuse: &relay.Status{Code: codes.Internal, Text: "late"}}
	}))
	s, err := stream(bounded(t), c, "Early")
	if err != nil {
		t.Fatal(err)
	}
	_ = s.SendMsg(&[]byte{'x'})
	if got := rest(s); !strings.Contains(got, "PermissionDenied") {
		t.Errorf("answer %s", got)
	}
}

// hang makes a call that the backend does not answer.
func hang(ctx context.Context, t *testing.T, c *grpc.ClientConn) grpc.ClientStream {
	t.Helper()
	s, err := stream(ctx, c, "Hang")
	if err != nil {
		t.Fatal(err)
	}
	_ = s.SendMsg(&[]byte{'m'})
	_ = s.CloseSend()
	return s
}

func TestOutcomes(t *testing.T) {
	told := make(chan relay.Outcome, 10)
	verdict := relay.Verdict{OnOutcome: func(o relay.Outcome) { told <- o }}
	hold := func(context.Context, []byte) relay.Verdict { return verdict }
	c, b, _ := held(t, func(string) relay.Handling { return relay.Handling{Hook: hold} })

	unary(bounded(t), c, "Echo", []byte("m"))
	if o := <-told; !o.Sent || !o.Answered || o.Code != codes.OK || string(o.Message) != "m" {
		t.Errorf("done: %+v", o)
	}
	unary(bounded(t), c, "Echo", []byte("zipped"), grpc.UseCompressor(gzip.Name))
	if o := <-told; !o.Answered || string(o.Message) != "zipped" {
		t.Errorf("done, compressed: %+v", o)
	}
	unary(bounded(t), c, "Error", []byte("m"))
	if o := <-told; !o.Sent || !o.Answered || o.Code != codes.ResourceExhausted || o.Message != nil {
		t.Errorf("failed: %+v", o)
	}

	ctx, cancel := context.WithCancel(bounded(t))
	hang(ctx, t, c)
	eventually(t, func() bool { b.mu.Lock(); defer b.mu.Unlock(); return strings.Contains(fmt.Sprint(b.seen), "Hang") })
	cancel()
	if o := <-told; !o.Sent || o.Answered {
		t.Errorf("cancelled: %+v", o)
	}

	b.told()
	s := hang(bounded(t), t, c)
	eventually(t, func() bool { b.mu.Lock(); defer b.mu.Unlock(); return strings.Contains(fmt.Sprint(b.seen), "Hang") })
	b.srv.Stop()
	if got := rest(s); !strings.Contains(got, "Unavailable") {
		t.Errorf("the backend is lost: %s", got)
	}
	if o := <-told; !o.Sent || o.Answered {
		t.Errorf("the backend is lost: %+v", o)
	}
	select {
	case o := <-told:
		t.Errorf("the outcome was reported twice: %+v", o)
	default:
	}
}

// TestCancelledWhileDeciding: the hook's context ends, and the backend sees no message.
func TestCancelledWhileDeciding(t *testing.T) {
	asked, told := make(chan bool), make(chan relay.Outcome, 1)
	c, b, _ := held(t, picking("Hang", func(ctx context.Context, _ []byte) relay.Verdict {
		close(asked)
		<-ctx.Done()
		return relay.Verdict{OnOutcome: func(o relay.Outcome) { told <- o }}
	}))
	ctx, cancel := context.WithCancel(bounded(t))
	hang(ctx, t, c)
	<-asked
	cancel()
	if o := <-told; o.Sent || o.Answered {
		t.Errorf("outcome %+v", o)
	}
	if got := unary(bounded(t), c, "Echo", []byte("after")); !strings.HasPrefix(got, `"after" OK`) {
		t.Errorf("the next call: %s", got)
	}
	if seen := fmt.Sprint(b.told()); strings.Contains(seen, "Hang") {
		t.Errorf("the backend saw %s", seen)
	}
}

// TestDrain: running calls end, new calls use another connection, and the old connection is closed.
func TestDrain(t *testing.T) {
	release := make(chan bool)
	c, _, p := held(t, picking("Both", func(context.Context, []byte) relay.Verdict {
		<-release
		return relay.Verdict{}
	}))
	s, err := stream(bounded(t), c, "Both")
	if err != nil {
		t.Fatal(err)
	}
	_ = s.SendMsg(&[]byte{'x'})
	unary(bounded(t), c, "Echo", nil) // the stream's headers came before it
	p.mu.Lock()
	first := p.conns[0]
	p.mu.Unlock()
	first.Drain()
	first.Drain()
	for range 50 {
		if got := unary(bounded(t), c, "Echo", []byte("new")); !strings.HasPrefix(got, `"new" OK`) {
			t.Fatalf("while draining: %s", got)
		}
	}
	close(release)
	_ = s.CloseSend()
	if got := rest(s); !strings.HasPrefix(got, `"x";"1 in all";`) {
		t.Errorf("the call under way: %s", got)
	}
	p.mu.Lock()
	n := len(p.conns)
	p.mu.Unlock()
	if n != 2 {
		t.Errorf("%d connections", n)
	}
}

// TestDrainBeforeGreeting: a caller accepts no frame before the backend's first frames. So Drain's frames
// come after those, and the caller repeats the call on another connection.
func TestDrainBeforeGreeting(t *testing.T) {
	b := startBackend(t, filepath.Join(t.TempDir(), "b.sock"))
	l, path := listen(t)
	greet := make(chan bool)
	conns := make(chan *relay.Conn, 2)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	t.Cleanup(func() { cancel(); _ = l.Close(); all.Wait() })
	all.Go(func() {
		for first := true; ; first = false {
			caller, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("unix", b.path)
			if err != nil {
				t.Error(err)
				return
			}
			if first {
				up = &slow{up, greet}
			}
			c := relay.New(caller, up, relay.Options{})
			conns <- c
			all.Go(func() { _ = c.Run(ctx) })
		}
	})
	client := dial(t, path)
	answer := make(chan string, 1)
	go func() { answer <- unary(bounded(t), client, "Echo", []byte("m")) }()
	(<-conns).Drain()
	close(greet)
	if got := <-answer; !strings.HasPrefix(got, `"m" OK`) {
		t.Errorf("answer %s", got)
	}
	if len(conns) != 1 {
		t.Errorf("%d more connections, want 1", len(conns))
	}
}

// slow is a backend that sends nothing until it is released.
type slow struct {
	net.Conn

	may chan bool
}

func (s *slow) Read(b []byte) (int, error) {
	<-s.may
	return s.Conn.Read(b)
}
