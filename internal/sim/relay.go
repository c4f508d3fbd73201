package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/trimtab/trimtab/internal/socket"
)

// relay listens at the public NRI socket and forwards connections to the inner socket of the adaptation, NRI's server.
// When the relay closes, it closes the plugins' connections, as they close when a runtime process ends. The adaptation
// itself does not close these connections when it stops.
type relay struct {
	listener    net.Listener
	innerSocket string

	mu         sync.Mutex        // guards conns and closed
	conns      map[net.Conn]bool // the open connections to plugins and to the inner socket
	closed     bool
	goroutines sync.WaitGroup
}

// listen makes the public socket. It returns an error if another process listens there.
func listen(path, inner string) (*relay, error) {
	if c, err := net.Dial("unix", path); err == nil {
		return nil, errors.Join(fmt.Errorf("listen at %s: another process listens there", path), c.Close())
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of the socket: %w", err)
	}
	if err := removeSocket(path); err != nil {
		return nil, err
	}
	l, err := socket.Listen(context.Background(), path, 0o600)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	r := &relay{listener: l, innerSocket: inner, conns: map[net.Conn]bool{}}
	r.goroutines.Go(r.accept)
	return r, nil
}

// removeSocket removes the socket that an ended runtime has left. It returns an error for a file that is not a socket.
func removeSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("listen at %s: a file that is not a socket has this path", path)
	}
	return os.Remove(path)
}

// accept connects each plugin to the inner socket, until the listener is closed.
func (r *relay) accept() {
	for {
		out, err := r.listener.Accept()
		if err != nil {
			return
		}
		in, err := net.Dial("unix", r.innerSocket)
		if err != nil {
			out.Close()
			continue
		}
		if !r.addConns(out, in) {
			return
		}
		r.goroutines.Go(func() { r.copyConn(out, in) })
		r.goroutines.Go(func() { r.copyConn(in, out) })
	}
}

// addConns adds open connections. If the relay is closed, it closes the connections and returns false.
func (r *relay) addConns(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		if r.closed {
			c.Close()
			continue
		}
		r.conns[c] = true
	}
	return !r.closed
}

// copyConn copies data from one connection to another. If one connection is closed, it closes both.
func (r *relay) copyConn(to, from net.Conn) {
	// The error does not matter, because both connections are closed after the copy.
	_, _ = io.Copy(to, from)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range []net.Conn{to, from} {
		c.Close()
		delete(r.conns, c)
	}
}

// close removes the socket and closes all connections.
func (r *relay) close() {
	r.listener.Close()
	r.mu.Lock()
	r.closed = true
	for c := range r.conns {
		c.Close()
	}
	r.mu.Unlock()
	r.goroutines.Wait()
}
