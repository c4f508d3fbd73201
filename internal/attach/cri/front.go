package cri

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/attach/relay"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/sleep"
	"github.com/trimtab/trimtab/internal/socket"
)

// frontend accepts callers' connections and relays them to the runtime.
type frontend struct {
	log    *slog.Logger
	dial   socket.Dialer
	queues *callQueues
	pick   relay.HandlingFunc

	mu       sync.Mutex // guards all fields below; never held across I/O
	conns    map[*relay.Conn]struct{}
	dialling int  // accepted callers that have no connection to the runtime yet
	frozen   bool // no new call is accepted
}

// freeze stops new calls on the open connections. If systemd holds the socket, callers that connect again wait for
// the next agent.
func (f *frontend) freeze() {
	f.mu.Lock()
	f.frozen = true
	all := slices.Collect(maps.Keys(f.conns))
	f.mu.Unlock()
	var draining sync.WaitGroup
	for _, c := range all {
		draining.Go(c.Drain) // a connection whose caller does not read must not delay the others
	}
	draining.Wait()
}

// accept serves connections until the listener closes.
func (f *frontend) accept(s relayedListener) {
	for {
		c, err := s.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // too many open files, for example
			f.log.Error("a connection cannot be accepted", logkey.Err, err)
			sleep.For(f.queues.ctx, acceptRetry)
			continue
		}
		f.mu.Lock()
		f.dialling++
		f.mu.Unlock()
		f.queues.work.Go(func() { f.serve(c, s.backend) })
	}
}

// serve relays one connection. While the runtime does not answer, it closes the
// connection, as the runtime's own socket would.
func (f *frontend) serve(caller net.Conn, to string) {
	limited, cancel := context.WithTimeout(f.queues.ctx, dialTimeout)
	b, err := f.dial.Dial(limited, to)
	cancel()
	if err != nil {
		f.mu.Lock()
		f.dialling--
		f.mu.Unlock()
		_ = caller.Close()
		f.log.Debug("cannot connect to the runtime for a caller", logkey.Err, err)
		return
	}
	conn := relay.New(caller, b, relay.Options{HandlingFor: f.pick})
	f.mu.Lock()
	f.dialling--
	f.conns[conn] = struct{}{}
	frozen := f.frozen
	f.mu.Unlock()
	if frozen { // accepted just before
		conn.Drain()
	}
	if err := conn.Run(f.queues.ctx); err != nil {
		f.log.Warn("a cri connection ended", logkey.Err, err)
	}
	f.mu.Lock()
	delete(f.conns, conn)
	f.mu.Unlock()
}

// drain waits, within bounds, until running calls have ended.
func (f *frontend) drain() {
	begun := time.Now()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for {
		passing, held := f.inFlight()
		waited := time.Since(begun)
		if !passing && !held || !held && waited > grace || waited > maxGrace {
			f.log.Info("the agent no longer serves its sockets", logkey.Took, waited.Round(time.Millisecond), logkey.Cut, passing || held)
			return
		}
		<-poll.C
	}
}

// inFlight reports whether a connection is open, and whether a held call still runs or
// its event is still queued.
func (f *frontend) inFlight() (passing, held bool) {
	f.mu.Lock()
	all := slices.Collect(maps.Keys(f.conns))
	passing = len(f.conns) > 0 || f.dialling > 0
	f.mu.Unlock()
	held = f.queues.busy()
	for _, c := range all {
		held = held || c.HasHeldCall()
	}
	return passing, held
}
