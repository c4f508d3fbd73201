package cri

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sync/errgroup"

	"github.com/trimtab/trimtab/internal/attach/cri/relay"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/socket"
)

const (
	// grace is how long calls under way may take when the agent ends, and
	// mostGrace how long held ones may, and what is to be told of pods: whoever is
	// next finds nothing half done.
	grace     = 3 * time.Second
	mostGrace = 15 * time.Second
	// dialTimeout bounds connecting to the runtime for a caller.
	dialTimeout = 5 * time.Second
	// acceptAgain is the pause after a connection that could not be accepted.
	acceptAgain = 50 * time.Millisecond
	// firstSystemdFD is where systemd hands down sockets (sd_listen_fds(3)).
	firstSystemdFD = 3
)

// ImageSocket is where an image service of its own is relayed, beside socket.
func ImageSocket(socket string) string { return strings.TrimSuffix(socket, ".sock") + "-images.sock" }

// Run serves until ctx ends. The socket opens when it is known how things stand,
// or when the runtime does not answer; then every call passes until it does. It
// is called once.
func (a *Attachment) Run(ctx context.Context) error {
	defer a.enter(StateIdle, nil)
	var err error
	if a.backend, err = newBackend(a.o.Runtime, a.o.Dial); err != nil {
		return err
	}
	defer a.backend.close()
	var stop context.CancelFunc
	a.ctx, stop = context.WithCancel(context.WithoutCancel(ctx))
	defer stop()

	a.enter(StateListing, nil)
	first, cancel := context.WithTimeout(ctx, a.o.Patience)
	a.noteLive(false, a.synchronise(first))
	cancel()

	if a.o.Hooks != nil {
		return a.runHooks(ctx, stop)
	}
	sockets, err := opened(ctx, a, a.listen)
	if err != nil || ctx.Err() != nil {
		return errors.Join(err, closeAll(sockets))
	}
	var accepting sync.WaitGroup
	for _, s := range sockets {
		a.o.Log.Info("serving the cri", logkey.Socket, s.listener.Addr().String(), logkey.Runtime, s.to)
		accepting.Go(func() { a.accept(s) })
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { a.follow(ctx); return nil })
	<-ctx.Done()
	for _, s := range sockets {
		_ = s.listener.Close()
	}
	accepting.Wait()
	a.freeze()
	a.drain()
	stop()
	err = group.Wait()
	a.work.Wait()
	return err
}

// freeze has callers open no more calls on the connections they have. Those who
// connect anew wait for the next agent, where systemd holds the socket.
func (a *Attachment) freeze() {
	a.mu.Lock()
	a.frozen = true
	all := slices.Collect(maps.Keys(a.conns))
	a.mu.Unlock()
	var told sync.WaitGroup
	for _, c := range all {
		told.Go(c.Drain) // one that is not read holds up no other
	}
	told.Wait()
}

// served is a socket that is served.
type served struct {
	listener net.Listener
	to       string
}

// listen opens what is served: sockets systemd holds for us, or our own.
func (a *Attachment) listen() ([]served, error) {
	targets := []served{{to: a.o.Runtime}}
	paths := []string{a.o.Socket}
	if a.o.Images != "" && a.o.Images != a.o.Runtime {
		targets = append(targets, served{to: a.o.Images})
		paths = append(paths, ImageSocket(a.o.Socket))
	}
	var err error
	if n := len(a.o.Listeners); n > len(targets) {
		return nil, fmt.Errorf("%d sockets were handed down and %d are served: the socket unit wants one ListenStream for cri.socket, and a second where cri.imageEndpoint is set", n, len(targets))
	}
	for i := range targets {
		if i < len(a.o.Listeners) {
			targets[i].listener = a.o.Listeners[i]
			continue
		}
		if targets[i].listener, err = listenAt(paths[i]); err != nil {
			for _, t := range targets[:i] {
				_ = t.listener.Close()
			}
			return nil, err
		}
	}
	return targets, nil
}

// HandedDown are the sockets systemd listens on for this process, as the
// environment says (sd_listen_fds(3)), which is cleared: what we start is handed
// nothing. The kubelet's connections wait in them while nobody serves.
func HandedDown() ([]net.Listener, error) {
	all, err := activation.Listeners()
	if err != nil {
		return nil, fmt.Errorf("sockets from systemd: %w", err)
	}
	for i, l := range all {
		if l == nil {
			return nil, fmt.Errorf("descriptor %d from systemd is no stream socket; the socket unit wants ListenStream alone", firstSystemdFD+i)
		}
	}
	return all, nil
}

// listenAt opens a socket of our own. A socket file that nobody serves any more
// is removed; one that somebody serves is not ours to take.
func listenAt(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // crictl's users look in; the socket itself is closed to them
		return nil, fmt.Errorf("directory of the cri socket: %w", err)
	}
	if fi, err := os.Lstat(path); err == nil {
		if fi.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("cri.socket %s exists and is no socket; name another or remove it", path)
		}
		d := net.Dialer{Timeout: time.Second}
		if c, err := d.DialContext(context.Background(), "unix", path); err == nil {
			_ = c.Close()
			return nil, fmt.Errorf("cri.socket %s is served by another process; end that or name another", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove the stale cri socket: %w", err)
		}
	}
	l, err := socket.Listen(context.Background(), path, 0o660) // as runtimes do: root and its group
	if err != nil {
		return nil, fmt.Errorf("listen on cri.socket: %w", err)
	}
	return l, nil
}

// accept serves connections until the listener closes.
func (a *Attachment) accept(s served) {
	for {
		c, err := s.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // too many open files, for example
			a.o.Log.Error("a connection cannot be accepted", logkey.Err, err)
			select {
			case <-a.ctx.Done():
			case <-time.After(acceptAgain):
			}
			continue
		}
		a.mu.Lock()
		a.dialling++
		a.mu.Unlock()
		a.work.Go(func() { a.serve(c, s.to) })
	}
}

// serve relays one connection. While the runtime is away its caller sees what it
// would see without us: a connection that ends.
func (a *Attachment) serve(caller net.Conn, to string) {
	limited, cancel := context.WithTimeout(a.ctx, dialTimeout)
	b, err := a.o.Dial.Dial(limited, to)
	cancel()
	if err != nil {
		a.mu.Lock()
		a.dialling--
		a.mu.Unlock()
		_ = caller.Close()
		a.o.Log.Debug("the runtime is not there for a caller", logkey.Err, err)
		return
	}
	conn := relay.New(caller, b, relay.Options{Pick: a.pick})
	a.mu.Lock()
	a.dialling--
	a.conns[conn] = struct{}{}
	frozen := a.frozen
	a.mu.Unlock()
	if frozen { // accepted just before
		conn.Drain()
	}
	if err := conn.Run(a.ctx); err != nil {
		a.o.Log.Warn("a cri connection ended", logkey.Err, err)
	}
	a.mu.Lock()
	delete(a.conns, conn)
	a.mu.Unlock()
}

// drain lets calls under way end, within bounds.
func (a *Attachment) drain() {
	begun := time.Now()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		passing, held := a.underWay()
		waited := time.Since(begun)
		if !passing && !held || !held && waited > grace || waited > mostGrace {
			a.o.Log.Info("handing over", logkey.Took, waited.Round(time.Millisecond), logkey.Cut, passing || held)
			return
		}
		<-look.C
	}
}

// underWay reports whether a connection is open, and whether a held call, or
// what is to be told of one, is not at its end.
func (a *Attachment) underWay() (passing, held bool) {
	a.mu.Lock()
	all := slices.Collect(maps.Keys(a.conns))
	passing, held = len(a.conns) > 0 || a.dialling > 0, len(a.lanes) > 0 || len(a.starts) > 0
	a.mu.Unlock()
	for _, c := range all {
		held = held || c.Holding()
	}
	return passing, held
}
