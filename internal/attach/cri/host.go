package cri

import (
	"context"
	"net"
	"time"

	"github.com/trimtab/trimtab/internal/report/logkey"
)

// NRIHost is a CRI server between the callers and the relay. It calls NRI plugins. It holds some calls for the plugins,
// and then sends these calls to the relay over connections of its own.
type NRIHost interface {
	// Serve serves callers until the listener closes. dial opens a connection to the relay.
	Serve(ctx context.Context, l net.Listener, dial func(context.Context) (net.Conn, error)) error
	// Stop waits until calls that have begun end. It waits at most heldLimit for calls that the host holds, and at most
	// otherLimit for all other calls.
	Stop(otherLimit, heldLimit time.Duration)
}

// serveHost lets the NRI host serve the connections of a socket. If the host fails, serveHost relays these connections
// without the host.
func (a *Attachment) serveHost(ctx context.Context, s relayedListener) {
	dial := func(context.Context) (net.Conn, error) { return a.front.connect(s.backend), nil }
	if err := a.o.NRIHost.Serve(ctx, s.listener, dial); err != nil {
		a.log.Error("the host of NRI plugins cannot serve the CRI; the agent relays the CRI without NRI plugins", logkey.Err, err)
		a.front.accept(s)
	}
}

// connect returns a connection that the relay forwards to the socket with the path backend. The relay serves this
// connection in the same way as the connection of a caller.
func (f *frontend) connect(backend string) net.Conn {
	ours, theirs := net.Pipe()
	f.mu.Lock()
	f.dialingCallers++
	f.mu.Unlock()
	f.queues.work.Go(func() { f.serve(theirs, backend) })
	return ours
}
