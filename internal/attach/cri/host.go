package cri

import (
	"context"
	"net"
	"time"

	"github.com/trimtab/trimtab/internal/report/logkey"
)

// Host is a CRI server in front of the relay. It holds some calls itself, and makes them again over connections
// that dial opens.
type Host interface {
	// Serve serves callers until the listener closes.
	Serve(ctx context.Context, l net.Listener, dial func(context.Context) (net.Conn, error)) error
	// Stop waits for calls that have begun: at most for the duration most if the host holds the call, and at most
	// for grace for all other calls.
	Stop(grace, most time.Duration)
}

// serveHost lets the host in front of the relay serve a socket.
func (a *Attachment) serveHost(ctx context.Context, s relayedListener) {
	dial := func(context.Context) (net.Conn, error) { return a.front.connect(s.backend), nil }
	if err := a.o.Host.Serve(ctx, s.listener, dial); err != nil {
		a.log.Error("the host of NRI plugins cannot serve the CRI; the agent relays the CRI without it", logkey.Err, err)
		a.front.accept(s)
	}
}

// connect makes a connection that the relay serves like a caller's.
func (f *frontend) connect(to string) net.Conn {
	ours, theirs := net.Pipe()
	f.mu.Lock()
	f.dialling++
	f.mu.Unlock()
	f.queues.work.Go(func() { f.serve(theirs, to) })
	return ours
}
