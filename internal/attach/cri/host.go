package cri

import (
	"context"
	"net"
	"time"

	"github.com/trimtab/trimtab/internal/report/logkey"
)

// NRIHost is a CRI server in front of the relay, which serves NRI plugins. It holds some calls itself, and then makes
// these calls over connections to the relay.
type NRIHost interface {
	// Serve serves callers until the listener closes. dial opens a connection to the relay.
	Serve(ctx context.Context, l net.Listener, dial func(context.Context) (net.Conn, error)) error
	// Stop waits for calls that have begun: at most for the duration most if the host holds the call, and at most for
	// grace for all other calls.
	Stop(grace, most time.Duration)
}

// serveHost lets the NRI host serve a socket. If the host cannot, serveHost relays the socket's connections.
func (a *Attachment) serveHost(ctx context.Context, s relayedListener) {
	dial := func(context.Context) (net.Conn, error) { return a.front.connect(s.backend), nil }
	if err := a.o.NRIHost.Serve(ctx, s.listener, dial); err != nil {
		a.log.Error("the host of NRI plugins cannot serve the CRI; the agent relays the CRI without it", logkey.Err, err)
		a.front.accept(s)
	}
}

// connect returns a connection that the relay serves in the same way as the connection of a caller.
func (f *frontend) connect(to string) net.Conn {
	ours, theirs := net.Pipe()
	f.mu.Lock()
	f.dialingCallers++
	f.mu.Unlock()
	f.queues.work.Go(func() { f.serve(theirs, to) })
	return ours
}
