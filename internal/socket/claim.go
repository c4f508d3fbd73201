package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// ServerSocket is a Unix socket on which a server of the agent listens.
type ServerSocket struct {
	// Path is the socket's path. Claim makes the socket's directory if the directory is missing.
	Path string
	Mode fs.FileMode // the permissions of the socket file
	// Key is the configuration key that has the path as its value. Program is the kind of program that may serve the
	// socket already, such as "agent". Both are for messages.
	Key, Program string
}

// ErrInUse means that another process serves the socket.
var ErrInUse = errors.New("another process serves the socket")

// dialTimeout is how long RemoveStale waits for a connection to the socket, before it returns an error.
const dialTimeout = 10 * time.Second

// Claim makes a socket and listens on it. It first removes a socket that a dead process left. The caller must call
// release after it has closed the listener. The error is ErrInUse if another process serves the socket.
func Claim(ctx context.Context, p ServerSocket) (l net.Listener, release func(), err error) {
	if err := os.MkdirAll(filepath.Dir(p.Path), 0o700); err != nil {
		return nil, nil, fmt.Errorf("make the socket's directory: %w", err)
	}
	lock, err := p.lock()
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			_ = lock.Close()
		}
	}()
	if err := p.RemoveStale(ctx); err != nil {
		return nil, nil, err
	}
	l, err = Listen(ctx, p.Path, p.Mode)
	if err != nil {
		return nil, nil, fmt.Errorf("make the socket: %w", err)
	}
	return l, func() { _ = lock.Close() }, nil
}

// lock takes a file lock, so that two agents that start at the same time do not remove each other's socket. The
// kernel releases the lock when the process ends, for whatever reason.
func (p ServerSocket) lock() (*os.File, error) {
	f, err := os.OpenFile(p.Path+".lock", os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the socket: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, inUseError{p}
		}
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return f, nil
}

// inUseError wraps ErrInUse. Its message has the socket's path and says what the user can do.
type inUseError struct{ socket ServerSocket }

func (e inUseError) Error() string {
	return fmt.Sprintf("another %s serves %s: stop it, or give this agent a different %s", e.socket.Program, e.socket.Path, e.socket.Key)
}

func (inUseError) Unwrap() error { return ErrInUse }

// RemoveStale removes the socket that a dead process left behind, and no other file. The error is ErrInUse if another
// process serves the socket.
func (p ServerSocket) RemoveStale(ctx context.Context) error {
	info, err := os.Lstat(p.Path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != os.ModeSocket:
		return fmt.Errorf("%s exists and is not a socket: remove it, or configure a different %s", p.Path, p.Key)
	}
	c, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "unix", p.Path)
	switch {
	case err == nil:
		_ = c.Close()
		return inUseError{p}
	case errors.Is(err, syscall.EAGAIN): // a process listens, and its queue of clients is full
		return inUseError{p}
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("find out whether %s is in use: %w", p.Path, err)
	}
	if err := os.Remove(p.Path); err != nil {
		return fmt.Errorf("remove the socket that an ended %s left: %w", p.Program, err)
	}
	return nil
}
