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
	log         *slog.Logger
	dial        socket.Dialer
	queues      *callQueues
	handlingFor relay.HandlingFunc // decides which calls the relay holds

	mu              sync.Mutex               // guards the fields below; never held across I/O
	conns           map[*relay.Conn]struct{} // the open connections of callers
	dialingCallers  int                      // the number of accepted connections that have no connection to the runtime yet
	newCallsStopped bool                     // no new call is accepted
}

// stopNewCalls tells the callers on all open connections that they must start new calls on another connection. If
// systemd holds the socket, callers that connect again wait for the next agent.
func (f *frontend) stopNewCalls() {
	f.mu.Lock()
	f.newCallsStopped = true
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
			f.log.Error("the agent cannot accept a connection on its socket", logkey.Err, err)
			sleep.For(f.queues.ctx, acceptRetry)
			continue
		}
		f.mu.Lock()
		f.dialingCallers++
		f.mu.Unlock()
		f.queues.work.Go(func() { f.serve(c, s.backend) })
	}
}

// serve relays one connection of a caller to the socket with the path backend. If serve cannot connect to that socket,
// it closes the caller's connection.
func (f *frontend) serve(caller net.Conn, backend string) {
	limited, cancel := context.WithTimeout(f.queues.ctx, dialTimeout)
	b, err := f.dial.Dial(limited, backend)
	cancel()
	if err != nil {
		f.mu.Lock()
		f.dialingCallers--
		f.mu.Unlock()
		_ = caller.Close()
		f.log.Debug("the agent cannot connect to the runtime, so it closes a caller's connection", logkey.Err, err)
		return
	}
	conn := relay.New(caller, b, relay.Options{HandlingFor: f.handlingFor})
	f.mu.Lock()
	f.dialingCallers--
	f.conns[conn] = struct{}{}
	newCallsStopped := f.newCallsStopped
	f.mu.Unlock()
	if newCallsStopped { // stopNewCalls ran before this connection was in conns
		conn.Drain()
	}
	if err := conn.Run(f.queues.ctx); err != nil {
		f.log.Warn("a relayed CRI connection ended with an error", logkey.Err, err)
	}
	f.mu.Lock()
	delete(f.conns, conn)
	f.mu.Unlock()
}

// awaitCallsEnd waits until all calls have ended. It waits at most for gracePeriod, or for maxGracePeriod while a held
// call is running.
func (f *frontend) awaitCallsEnd() {
	begun := time.Now()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for {
		passing, held := f.inFlight()
		waited := time.Since(begun)
		if !passing && !held || !held && waited > gracePeriod || waited > maxGracePeriod {
			f.log.Info("the agent no longer serves its sockets", logkey.Took, waited.Round(time.Millisecond), logkey.Cut, passing || held)
			return
		}
		<-poll.C
	}
}

// inFlight returns passing if a connection is open. It returns held if a held call still runs, or if the event of such
// a call is still queued.
func (f *frontend) inFlight() (passing, held bool) {
	f.mu.Lock()
	all := slices.Collect(maps.Keys(f.conns))
	passing = len(f.conns) > 0 || f.dialingCallers > 0
	f.mu.Unlock()
	held = f.queues.hasWork()
	for _, c := range all {
		held = held || c.HasHeldCall()
	}
	return passing, held
}
