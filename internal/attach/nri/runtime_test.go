package nri

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	nrilog "github.com/containerd/nri/pkg/log"
	"github.com/containerd/nri/pkg/net/multiplex"
	"github.com/containerd/ttrpc"
	"go.uber.org/goleak"

	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/attachtest"
)

func TestMain(m *testing.M) {
	nrilog.Set(stubLog{slog.New(slog.DiscardHandler)})
	if Launched() {
		os.Exit(launchedPlugin())
	}
	goleak.VerifyTestMain(m)
}

// recorder is a conductor with answers that the test sets.
type recorder struct {
	answer func(ctx context.Context, ev lifecycle.Event) (conductor.Answer, error)
	wants  []lifecycle.Kind

	mu       sync.Mutex
	events   []lifecycle.Event
	attached int
	detached []error
	runtime  conductor.Runtime
}

func (r *recorder) Handle(ctx context.Context, _ conductor.Carrier, ev lifecycle.Event) (conductor.Answer, error) {
	r.mu.Lock()
	r.events = append(r.events, ev)
	r.mu.Unlock()
	if r.answer == nil {
		return conductor.Answer{}, nil
	}
	return r.answer(ctx, ev)
}

func (r *recorder) Wants() []lifecycle.Kind {
	if r.wants != nil {
		return r.wants
	}
	var all []lifecycle.Kind
	for k := lifecycle.Synchronize; k <= lifecycle.Configure; k++ {
		all = append(all, k)
	}
	return all
}

func (r *recorder) Attached(_ conductor.Carrier, rt conductor.Runtime) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attached++
	r.runtime = rt
}

func (r *recorder) Detached(_ conductor.Carrier, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.detached = append(r.detached, err)
}

func (r *recorder) counts() (attached, detached int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.attached, len(r.detached)
}

// last returns the last event of a kind.
func (r *recorder) last(k lifecycle.Kind) (lifecycle.Event, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.events) - 1; i >= 0; i-- {
		if r.events[i].Kind == k {
			return r.events[i], true
		}
	}
	return lifecycle.Event{}, false
}

// run starts an attachment that ends with the test.
func run(t testing.TB, o Options) *Attachment {
	t.Helper()
	o.Log = slog.New(slog.DiscardHandler)
	if o.Backoff == (connect.Backoff{}) {
		o.Backoff = connect.Backoff{Min: 5 * time.Millisecond, Max: 50 * time.Millisecond}
	}
	a := New(o)
	attachtest.Run(t, a.Run)
	return a
}

func inState(a *Attachment, want string) func() bool {
	return func() bool { s, _, _ := a.Status(); return s == want }
}

// upstream is a runtime: the upstream library behind a gate, because the library does not close its
// plugins' connections when it stops.
type upstream struct {
	*adaptation.Adaptation
	gate    *gate
	plugins *atomic.Int64 // plugins that are registered now
	update  func([]*api.ContainerUpdate) ([]*api.ContainerUpdate, error)
	pods    []*api.PodSandbox
	ctrs    []*api.Container
	synced  []*api.ContainerUpdate // the plugins' answers to Synchronize
}

type counter struct {
	adaptation.Metrics
	n *atomic.Int64
}

func (c counter) UpdatePluginCount(n int)                                                  { c.n.Store(int64(n)) }
func (counter) RecordPluginInvocation(string, string, error)                               {}
func (counter) RecordPluginLatency(string, string, time.Duration)                          {}
func (counter) RecordPluginAdjustments(string, string, *api.ContainerAdjustment, int, int) {}

func boot(t testing.TB, socket string, u *upstream, opts ...adaptation.Option) *upstream {
	t.Helper()
	dir := t.TempDir()
	u.plugins = &atomic.Int64{}
	inner := filepath.Join(dir, "s")
	opts = append([]adaptation.Option{
		adaptation.WithSocketPath(inner), adaptation.WithPluginPath(filepath.Join(dir, "p")),
		adaptation.WithPluginConfigPath(dir), adaptation.WithMetrics(counter{n: u.plugins}),
	}, opts...)
	syncFn := func(ctx context.Context, cb adaptation.SyncCB) (err error) {
		u.synced, err = cb(ctx, u.pods, u.ctrs)
		return err
	}
	updateFn := func(_ context.Context, up []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) {
		if u.update == nil {
			return nil, nil
		}
		return u.update(up)
	}
	var err error
	if u.Adaptation, err = adaptation.New("containerd", "v2.4.2", syncFn, updateFn, opts...); err != nil {
		t.Fatal(err)
	}
	if err := u.Start(); err != nil {
		t.Fatal(err)
	}
	u.gate = openGate(t, socket, inner)
	t.Cleanup(u.kill)
	return u
}

// kill ends the runtime like a crash: its socket disappears and its connections break.
func (u *upstream) kill() {
	u.gate.close()
	u.Stop()
}

func (u *upstream) registered() bool { return u.plugins.Load() == 1 }

// gate forwards connections, counts them, and can cut them.
type gate struct {
	l       net.Listener
	mu      sync.Mutex
	conns   map[net.Conn]bool
	closed  bool
	most    int
	done    sync.WaitGroup
	backend string
}

func openGate(t testing.TB, socket, backend string) *gate {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{l: l, conns: map[net.Conn]bool{}, backend: backend}
	g.done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			g.forward(c)
		}
	})
	return g
}

func (g *gate) forward(c net.Conn) {
	b, err := net.Dial("unix", g.backend)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil || g.closed {
		c.Close()
		if err == nil {
			b.Close()
		}
		return
	}
	g.conns[c], g.conns[b] = true, true
	g.most = max(g.most, len(g.conns)/2)
	drop := func() {
		c.Close()
		b.Close()
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.conns, c)
		delete(g.conns, b)
	}
	g.done.Go(func() { _, _ = io.Copy(b, c); drop() })
	g.done.Go(func() { _, _ = io.Copy(c, b); drop() })
}

func (g *gate) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.conns {
		c.Close()
	}
}

func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.l.Close()
	g.cut()
	g.done.Wait()
}

// wire is the runtime's end of one connection, for behaviour that the library never shows.
type wire struct {
	plugin     api.PluginService
	registered chan *api.RegisterPluginRequest
	closed     chan struct{}
	served     chan struct{}
	mux        multiplex.Mux
	server     *ttrpc.Server
	client     *ttrpc.Client
	updates    func(context.Context, *api.UpdateContainersRequest) (*api.UpdateContainersResponse, error)
}

func (w *wire) RegisterPlugin(_ context.Context, r *api.RegisterPluginRequest) (*api.Empty, error) {
	w.registered <- r
	return &api.Empty{}, nil
}

func (w *wire) UpdateContainers(ctx context.Context, r *api.UpdateContainersRequest) (*api.UpdateContainersResponse, error) {
	return w.updates(ctx, r)
}

func newWire(t testing.TB, conn net.Conn) *wire {
	t.Helper()
	w := &wire{registered: make(chan *api.RegisterPluginRequest, 1), closed: make(chan struct{}), served: make(chan struct{})}
	w.mux = multiplex.Multiplex(conn, multiplex.WithBlockedRead())
	pc, err := w.mux.Open(multiplex.PluginServiceConn)
	if err != nil {
		t.Fatal(err)
	}
	w.client = ttrpc.NewClient(pc, ttrpc.WithOnClose(func() { close(w.closed) }))
	w.plugin = api.NewPluginClient(w.client)
	if w.server, err = ttrpc.NewServer(); err != nil {
		t.Fatal(err)
	}
	l, err := w.mux.Listen(multiplex.RuntimeServiceConn)
	if err != nil {
		t.Fatal(err)
	}
	api.RegisterRuntimeService(w.server, w)
	go func() {
		defer close(w.served)
		_ = w.server.Serve(context.Background(), l)
	}()
	w.mux.Unblock()
	t.Cleanup(w.close)
	return w
}

// request waits for the plugin to register.
func (w *wire) request(t testing.TB) *api.RegisterPluginRequest {
	t.Helper()
	end := time.NewTimer(time.Minute)
	defer end.Stop()
	select {
	case r := <-w.registered:
		return r
	case <-end.C:
		t.Fatal("timed out: plugin registers")
		return nil
	}
}

func (w *wire) close() {
	w.mux.Close()
	w.client.Close()
	w.server.Close()
	<-w.served
	<-w.closed
}

// listen opens a socket that ends with the test.
func listen(t testing.TB, socket string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func accept(t testing.TB, l net.Listener) net.Conn {
	t.Helper()
	if err := l.(*net.UnixListener).SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func socketPath(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "nri.sock")
}
