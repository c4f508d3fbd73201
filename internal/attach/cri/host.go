package cri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/internal/report/logkey"
)

// Host is a CRI server in front of the relay that holds calls of its own. It makes
// them again over connections that dial opens.
type Host interface {
	// Serve serves callers until the listener closes.
	Serve(ctx context.Context, l net.Listener, dial func(context.Context) (net.Conn, error)) error
	// Stop waits for calls that have begun: for those that the host holds at most most,
	// for all others at most grace.
	Stop(grace, most time.Duration)
}

// host has the host in front of the relay serve a socket.
func (a *Attachment) host(ctx context.Context, s served) {
	dial := func(context.Context) (net.Conn, error) { return a.front.connect(s.to) }
	if err := a.o.Host.Serve(ctx, s.listener, dial); err != nil {
		a.log.Error("the cri is not served through the host of NRI plugins; it is relayed alone", logkey.Err, err)
		a.front.accept(s)
	}
}

// connect makes a connection that is relayed like a caller's.
func (f *frontend) connect(to string) (net.Conn, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("connect to the relay: %w", err)
	}
	ours, err := connOf(fds[0])
	theirs, other := connOf(fds[1])
	if err = errors.Join(err, other); err != nil {
		return nil, fmt.Errorf("connect to the relay: %w", err)
	}
	f.mu.Lock()
	f.dialling++
	f.mu.Unlock()
	f.order.work.Go(func() { f.serve(theirs, to) })
	return ours, nil
}

func connOf(fd int) (net.Conn, error) {
	file := os.NewFile(uintptr(fd), "relay") //nolint:gosec // a descriptor
	defer file.Close()
	return net.FileConn(file)
}
