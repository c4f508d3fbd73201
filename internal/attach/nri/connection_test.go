package nri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/attachtest"
)

// never is a wait for the socket that is so long that only an event can end it. A dial between bind and
// listen is refused, so such dials are retried soon.
var never = connect.Backoff{Min: 10 * time.Millisecond, Max: time.Hour}

// TestSocketAppearsLater: the attachment needs no polling, whatever directory above the socket is missing.
func TestSocketAppearsLater(t *testing.T) {
	dir := t.TempDir()
	sock := filepath.Join(dir, "run", "nri", "nri.sock")
	a := run(t, Options{Socket: sock, Handler: &recorder{}, Backoff: never})
	attachtest.Until(t, "waiting", inState(a, StateWaiting))
	if _, _, err := a.Status(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("waits because of %v", err)
	}
	for _, d := range []string{filepath.Join(dir, "run"), filepath.Dir(sock)} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	boot(t, sock, &upstream{})
	attachtest.Until(t, "synchronised", inState(a, connect.StateSynchronised))
}

// TestDirectoryReplaced: a runtime that is reinstalled removes its directory.
func TestDirectoryReplaced(t *testing.T) {
	sock := filepath.Join(t.TempDir(), "nri", "nri.sock")
	a := run(t, Options{Socket: sock, Handler: &recorder{}, Backoff: never})
	for range 3 {
		if err := os.Mkdir(filepath.Dir(sock), 0o755); err != nil {
			t.Fatal(err)
		}
		u := boot(t, sock, &upstream{})
		attachtest.Until(t, "synchronised", inState(a, connect.StateSynchronised))
		if err := os.RemoveAll(filepath.Dir(sock)); err != nil {
			t.Fatal(err)
		}
		u.gate.cut()
		attachtest.Until(t, "not connected", func() bool { return !inState(a, connect.StateSynchronised)() })
	}
}

// TestStaleSocket: a socket file without a listener is retried, and reported.
func TestStaleSocket(t *testing.T) {
	sock := socketPath(t)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: sock, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	a := run(t, Options{Socket: sock, Handler: &recorder{}})
	attachtest.Until(t, "refused", func() bool { _, _, err := a.Status(); return err != nil })
	if err := os.Remove(sock); err != nil {
		t.Fatal(err)
	}
	attachtest.Until(t, "waiting", inState(a, StateWaiting))
	boot(t, sock, &upstream{})
	attachtest.Until(t, "synchronised", inState(a, connect.StateSynchronised))
}

// TestRestarts: twenty runtimes start and end; the attachment registers once at each, and nothing is left behind.
func TestRestarts(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	r, sock := &recorder{}, socketPath(t)
	a := New(Options{Socket: sock, Handler: r, Log: discard(), Backoff: never})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	for i := range 20 {
		u := boot(t, sock, &upstream{pods: []*api.PodSandbox{aPod()}})
		attachtest.Until(t, "registered", u.registered)
		attachtest.Until(t, "attached", func() bool { n, m := r.counts(); return n == i+1 && m == i })
		if _, err := u.CreateContainer(ctx, &api.CreateContainerRequest{Pod: aPod(), Container: aContainer()}); err != nil {
			t.Error(err)
		}
		u.kill()
		attachtest.Until(t, "detached", func() bool { _, m := r.counts(); return m == i+1 })
		if u.gate.most != 1 {
			t.Errorf("%d connections at once", u.gate.most)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, err := range r.detached {
		if err == nil {
			t.Error("a lost connection was reported as a clean stop")
		}
	}
}

// TestConnectionCut: the runtime continues to run, and the attachment registers again at once.
func TestConnectionCut(t *testing.T) {
	r := &recorder{}
	_, u := attached(t, r, &upstream{})
	for i := range 5 {
		u.gate.cut()
		attachtest.Until(t, "attached again", func() bool { n, _ := r.counts(); return n == i+2 })
	}
	if u.gate.most != 1 {
		t.Errorf("%d connections at once", u.gate.most)
	}
}

// mute closes a connection after it has written one message.
type mute struct {
	net.Conn
	writes atomic.Int64
}

func (m *mute) Write(b []byte) (int, error) {
	n, err := m.Conn.Write(b)
	if m.writes.Add(1) == 2 { // a header and a payload
		m.Close()
	}
	return n, err
}

// TestDiesWhileRegistering: in this case the upstream stub would never return.
func TestDiesWhileRegistering(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	sock := socketPath(t)
	l, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{}
	a := New(Options{Socket: sock, Handler: r, Log: discard(), Backoff: connect.Backoff{Min: time.Millisecond, Max: time.Millisecond}, HandshakeTimeout: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	for range 10 {
		w := newWire(t, &mute{Conn: accept(t, l)})
		w.request(t)
		<-w.closed
		w.close()
	}
	w := newWire(t, accept(t, l))
	w.request(t)
	configure(t, w, &api.ConfigureRequest{RuntimeName: "containerd", RuntimeVersion: "v2.4.2"})
	if _, err := w.plugin.Synchronize(ctx, &api.SynchronizeRequest{}); err != nil {
		t.Fatal(err)
	}
	attachtest.Until(t, "synchronised", inState(a, connect.StateSynchronised))
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	l.Close()
	w.close()
	if n, m := r.counts(); n != 1 || m != 1 || r.detached[0] != nil {
		t.Errorf("attached %d, detached %v", n, r.detached)
	}
}

// TestSilentRuntime: the attachment gives up a runtime that does not answer, whether it stops answering
// before RegisterPlugin or after.
func TestSilentRuntime(t *testing.T) {
	sock := socketPath(t)
	l := listen(t, sock)
	a := run(t, Options{Socket: sock, Handler: &recorder{}, HandshakeTimeout: 50 * time.Millisecond})
	silent := accept(t, l)
	attachtest.Until(t, "given up", inState(a, connect.StateLost))
	silent.Close()
	for asked := false; !asked; { // an attempt that was given up before it was accepted does not count
		w := newWire(t, accept(t, l))
		select {
		case <-w.registered:
			asked = true
			<-w.closed
		case <-w.closed:
		}
	}
	accept(t, l)
}

// TestStopWhileRegistering: Run ends with ctx in every state.
func TestStopWhileRegistering(t *testing.T) {
	sock := socketPath(t)
	l := listen(t, sock)
	a := New(Options{Socket: sock, Handler: &recorder{}, Log: discard(), HandshakeTimeout: time.Hour})
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		w := newWire(t, accept(t, l))
		w.request(t)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func configure(t *testing.T, w *wire, req *api.ConfigureRequest) *api.ConfigureResponse {
	t.Helper()
	rsp, err := w.plugin.Configure(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return rsp
}

// wired connects an attachment to a plain connection.
func wired(t *testing.T, o Options) (*Attachment, *wire, *api.RegisterPluginRequest) {
	t.Helper()
	o.Socket = socketPath(t)
	l := listen(t, o.Socket)
	a := run(t, o)
	w := newWire(t, accept(t, l))
	return a, w, w.request(t)
}

// TestOldRuntimes: the attachment does not subscribe to events that the runtime does not know.
func TestOldRuntimes(t *testing.T) {
	for _, tc := range []struct {
		name, release, nri string
		want               int32
	}{
		{"containerd", "v1.7.20", "", 0x7ff},
		{"containerd", "v2.1.0", "", 0x7ff},
		{"containerd", "v2.2.0", "", 0xfff},
		{"containerd", "v2.4.2", "v0.12.3", 0xfff},
		{"iSulad", "2.1.6", "", 0x7ff},
	} {
		t.Run(tc.name+tc.release, func(t *testing.T) {
			a, w, reg := wired(t, Options{Name: "tt", Index: "07", Handler: &recorder{}, FailRequest: true})
			if reg.PluginName != "tt" || reg.PluginIdx != "07" {
				t.Errorf("registered as %v", reg)
			}
			rsp := configure(t, w, &api.ConfigureRequest{RuntimeName: tc.name, RuntimeVersion: tc.release, NRIVersion: tc.nri})
			want := &api.ConfigureResponse{Events: tc.want, FailurePolicy: &api.FailurePolicy{FailRequest: true, KeepConnected: true}}
			if d := cmp.Diff(want, rsp, protocmp.Transform()); d != "" {
				t.Error(d)
			}
			attachtest.Until(t, "registered", inState(a, StateRegistered))
			if _, err := w.plugin.Configure(t.Context(), &api.ConfigureRequest{}); err == nil {
				t.Error("a second Configure was taken")
			}
			// Releases before 0.12 send the events without an answer in this way.
			if _, err := w.plugin.StateChange(t.Context(), &api.StateChangeEvent{Event: api.Event_RUN_POD_SANDBOX, Pod: aPod()}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSlowSynchronize: Synchronize is answered in time, and the attachment counts as attached only when it
// is handled.
func TestSlowSynchronize(t *testing.T) {
	release := make(chan struct{})
	r := &recorder{answer: func(_ context.Context, ev lifecycle.Event) (conductor.Answer, error) {
		if ev.Kind == lifecycle.Synchronize {
			<-release
		}
		return conductor.Answer{}, nil
	}}
	a, w, _ := wired(t, Options{Handler: r})
	configure(t, w, &api.ConfigureRequest{RequestTimeout: 40})
	if _, err := w.plugin.Synchronize(t.Context(), &api.SynchronizeRequest{}); err != nil {
		t.Fatal(err)
	}
	// Events that arrive meanwhile are answered.
	if _, err := w.plugin.CreateContainer(t.Context(), &api.CreateContainerRequest{Container: aContainer()}); err != nil {
		t.Fatal(err)
	}
	if n, _ := r.counts(); n != 0 || !inState(a, StateRegistered)() {
		t.Error("attached before it was synchronised")
	}
	close(release)
	attachtest.Until(t, "attached", func() bool { n, _ := r.counts(); return n == 1 })
}

// TestHungUpdate: an update that the runtime does not answer ends at its deadline.
func TestHungUpdate(t *testing.T) {
	r := &recorder{}
	a, w, _ := wired(t, Options{Handler: r})
	timeouts := make(chan bool, 2)
	w.updates = func(ctx context.Context, _ *api.UpdateContainersRequest) (*api.UpdateContainersResponse, error) {
		_, told := ctx.Deadline()
		timeouts <- told
		<-ctx.Done()
		return nil, ctx.Err()
	}
	configure(t, w, &api.ConfigureRequest{})
	if _, err := w.plugin.Synchronize(t.Context(), &api.SynchronizeRequest{}); err != nil {
		t.Fatal(err)
	}
	attachtest.Until(t, "synchronised", inState(a, connect.StateSynchronised))
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		_, err := a.Update(ctx, []conductor.Settings{{Container: "c", Values: everything()}})
		cancel()
		if err == nil || !<-timeouts {
			t.Errorf("update: %v", err)
		}
	}
	if !inState(a, connect.StateSynchronised)() {
		t.Error("a slow update cost the connection")
	}
}

// TestStopWhileHandling: running requests are cancelled, and the attachment waits for them.
func TestStopWhileHandling(t *testing.T) {
	inside := make(chan struct{})
	var left atomic.Bool
	r := &recorder{answer: func(ctx context.Context, ev lifecycle.Event) (conductor.Answer, error) {
		if ev.Kind == lifecycle.CreateContainer {
			close(inside)
			<-ctx.Done()
			left.Store(true)
		}
		return conductor.Answer{}, nil
	}}
	sock := socketPath(t)
	u := boot(t, sock, &upstream{})
	a := New(Options{Socket: sock, Handler: r, Log: discard()})
	ctx, cancel := context.WithCancel(t.Context())
	done, created := make(chan error, 1), make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	attachtest.Until(t, "registered", u.registered)
	go func() {
		_, err := u.CreateContainer(context.Background(), &api.CreateContainerRequest{Container: aContainer()})
		created <- err
	}()
	<-inside
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !left.Load() {
		t.Error("a handler was left behind")
	}
	if err := <-created; err != nil {
		t.Errorf("the end of the attachment failed a pod: %v", err)
	}
}

// deaf is a runtime's end of a connection that stops reading on demand.
type deaf struct {
	net.Conn

	stop, end chan struct{}
}

func (d *deaf) Read(b []byte) (int, error) {
	select {
	case <-d.stop:
		<-d.end
		return 0, io.EOF
	default:
		return d.Conn.Read(b)
	}
}

// unread returns how many bytes wait to be read.
func (d *deaf) unread(t *testing.T) int {
	t.Helper()
	raw, err := d.Conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if wrong := raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }); wrong != nil || err != nil {
		t.Fatal(wrong, err)
	}
	return n
}

// TestRuntimeReadsNothing: if a runtime stops reading, the attachment closes the connection when its writes
// take too long, and the agent can end.
func TestRuntimeReadsNothing(t *testing.T) {
	for name, patience := range map[string]time.Duration{"is given up": 300 * time.Millisecond, "at the end": time.Hour} {
		t.Run(name, func(t *testing.T) {
			sock := socketPath(t)
			l := listen(t, sock)
			r := &recorder{}
			a := New(Options{Socket: sock, Handler: r, Log: discard(), WriteTimeout: patience, Backoff: connect.Backoff{Min: time.Hour, Max: time.Hour}})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- a.Run(ctx) }()
			d := &deaf{Conn: accept(t, l), stop: make(chan struct{}), end: make(chan struct{})}
			w := newWire(t, d)
			w.request(t)
			configure(t, w, &api.ConfigureRequest{})
			if _, err := w.plugin.Synchronize(t.Context(), &api.SynchronizeRequest{}); err != nil {
				t.Fatal(err)
			}
			attachtest.Until(t, "synchronised", inState(a, connect.StateSynchronised))
			close(d.stop)
			var calls sync.WaitGroup
			defer calls.Wait()
			defer cancel()
			defer d.Close()
			defer close(d.end)
			long := strings.Repeat("x", 64<<10)
			var all []conductor.Settings
			for i := range 32 { // 2 MiB are more than any socket buffer
				all = append(all, conductor.Settings{Container: fmt.Sprint(long, i), Values: everything()})
			}
			calls.Go(func() { _, _ = a.Update(ctx, all) })
			if patience < time.Hour {
				attachtest.Until(t, "given up", inState(a, connect.StateLost))
			} else {
				// 2 MiB do not fit, and the other end does not read: the attachment's write blocks.
				attachtest.Until(t, "a full socket", func() bool { return d.unread(t) >= 64<<10 })
			}
			cancel()
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Fatal("it hangs")
			}
		})
	}
}
