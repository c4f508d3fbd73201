package nri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	nrinet "github.com/containerd/nri/pkg/net"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// Run keeps the attachment connected until ctx ends, and then returns nil. A launched plugin has only one connection:
// Run returns ErrRuntimeGone when the runtime closes that connection. Run may be called only once.
func (a *Attachment) Run(ctx context.Context) error {
	defer a.enter(connect.StateIdle, nil)
	if Launched() {
		return a.runLaunched(ctx)
	}
	return a.runSocket(ctx)
}

// runSocket keeps a connection to the runtime's socket until ctx ends.
func (a *Attachment) runSocket(ctx context.Context) error {
	w := newSocketWatch(a.o.Socket)
	var watching sync.WaitGroup
	defer watching.Wait()
	if !a.o.Polls {
		watching.Go(func() { w.run(ctx, a.o.Log) })
	}
	var m missingSocketWarning
	connect.Attempts{
		Backoff: a.o.Backoff, Enter: a.enter, WhyAbsent: func() error { return a.whyAbsent(&m) }, Admit: a.o.Admit, AdmitInterval: a.o.AdmitInterval, Attempt: a.attempt, Wake: w.socketCreated,
		OnFailure: func(err error) {
			a.o.Log.Warn("the agent has no connection to the runtime's NRI socket", logkey.Err, err)
		},
	}.Run(ctx)
	return nil
}

// attempt makes one connection and serves it until it ends. The result worked is true if the runtime sent Synchronize
// or another event.
func (a *Attachment) attempt(ctx context.Context) (worked bool, err error) {
	a.enter(StateDialing, nil)
	limited, cancel := context.WithTimeout(ctx, a.o.HandshakeTimeout)
	conn, err := a.o.Dial.Dial(limited, a.o.Socket)
	cancel()
	if err != nil {
		return false, fmt.Errorf("connect to the NRI socket: %w", err)
	}
	return a.serve(ctx, conn)
}

// runLaunched serves the connection that the runtime passed to this process. It returns when the runtime closes this
// connection, because the runtime opens no other connection.
func (a *Attachment) runLaunched(ctx context.Context) error {
	env := os.Getenv(api.PluginSocketEnvVar)
	fd, err := strconv.Atoi(env)
	if err != nil {
		return fmt.Errorf("launched NRI plugin: read a file descriptor from %s=%q: %w", api.PluginSocketEnvVar, env, err)
	}
	conn, err := nrinet.NewFdConn(fd)
	if err != nil {
		return fmt.Errorf("launched NRI plugin: open the runtime's connection, file descriptor %d: %w", fd, err)
	}
	if refused := a.awaitAdmission(ctx); refused != nil && ctx.Err() == nil {
		err = a.runRegisteredOnly(ctx, conn, refused)
	} else {
		_, err = a.serve(ctx, conn)
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the caller ended ctx, so this is no failure
	}
	return errors.Join(ErrRuntimeGone, err)
}

// launchTimeout is how long a launched plugin waits until Admit returns nil. It must wait, because the plugin process
// that the runtime launched before may still be about to exit. launchTimeout is shorter than the time that runtimes
// wait for a registration.
const launchTimeout = 2 * time.Second

// awaitAdmission calls Admit until it returns nil, or launchTimeout has passed. It returns the last error of Admit.
func (a *Attachment) awaitAdmission(ctx context.Context) (refused error) {
	_ = wait.PollUntilContextTimeout(ctx, a.o.AdmitInterval, launchTimeout, true, func(context.Context) (admitted bool, err error) {
		refused = a.o.Admit()
		return refused == nil, nil
	})
	return refused
}

// runRegisteredOnly registers over conn, the connection that the runtime passed to this process, although another agent
// works on the node. It registers because some runtimes do not start before the plugin has registered. Its answers on
// this connection change nothing. A launched plugin can register only once. So when the other agent ends and Admit
// returns nil, this agent attaches through the runtime's socket, as an external plugin. The parameter refused is the
// last error of Admit.
func (a *Attachment) runRegisteredOnly(ctx context.Context, conn net.Conn, refused error) error {
	s, err := newSession(ctx, a, conn)
	if err != nil {
		_ = conn.Close()
		return err
	}
	defer s.finish()
	s.registerOnly = true
	a.enter(connect.StateStandby, refused)
	if err := s.start(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	attached := make(chan error, 1)
	go func() { attached <- a.runSocket(ctx) }()
	err = s.awaitEnd(ctx)
	cancel()
	return errors.Join(err, <-attached)
}

// errNoSynchronize is the error in Status while the agent does not know the containers that ran before this
// connection.
var errNoSynchronize = errors.New("the runtime sent no list of containers (Synchronize), so the agent does not know the containers that run already")

// serveEvents serves a session from its first event to the end of the connection. Synchronize may arrive later than
// other events.
func (a *Attachment) serveEvents(ctx context.Context, s *session) error {
	a.syncedSession.Store(s)
	a.o.Log.Info("attached to runtime", logkey.Runtime, a.About())
	s.recoverPanic("Attached", func() { a.o.Handler.Attached(a, a) })
	select {
	case <-s.synced.ch:
		a.enter(connect.StateSynchronised, nil)
	case <-s.conn.dead.ch:
	case <-ctx.Done():
	}
	return s.awaitEnd(ctx)
}

// serve runs one session over conn, from the registration to the end of the connection. The result worked is true if
// the runtime sent Synchronize or another event.
func (a *Attachment) serve(ctx context.Context, conn net.Conn) (worked bool, err error) {
	s, err := newSession(ctx, a, conn)
	if err != nil {
		_ = conn.Close()
		return false, err
	}
	a.enter(StateRegistering, nil)
	if err := s.start(); err != nil {
		s.finish()
		return false, err
	}
	select {
	case <-s.synced.ch:
		a.enter(connect.StateSynchronised, nil)
		worked, err = true, a.serveEvents(ctx, s)
	case <-s.eventBeforeSync.ch:
		a.enter(StateRegistered, errNoSynchronize)
		a.o.Log.Warn("the agent has no list of the running containers", logkey.Err, errNoSynchronize)
		worked, err = true, a.serveEvents(ctx, s)
	case <-s.conn.dead.ch:
		err = errors.New("the runtime closed the connection before it sent Synchronize")
	case <-ctx.Done():
	}
	a.syncedSession.Store(nil)
	s.finish()
	if worked {
		s.recoverPanic("Detached", func() { a.o.Handler.Detached(a, err) })
	}
	return worked, err
}
