package status

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/trimtab/trimtab/internal/socket"
)

// listen opens the socket for its owner alone. release gives it up; it is to
// be called when the listener is closed.
func listen(ctx context.Context, path string) (l net.Listener, release func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, nil, fmt.Errorf("make the socket's directory: %w", err)
	}
	lock, err := claim(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			_ = lock.Close()
		}
	}()
	if err := sweep(ctx, path); err != nil {
		return nil, nil, err
	}
	l, err = socket.Listen(ctx, path, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("listen: %w", err)
	}
	return l, func() { _ = lock.Close() }, nil
}

// claim keeps two agents that start at once from removing each other's socket.
// The kernel drops the lock with its process, however that ends.
func claim(path string) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the socket: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, inUse(path)
		}
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return f, nil
}

// ErrInUse is why a status socket cannot be opened that another agent serves.
var ErrInUse = errors.New("another agent serves it")

// usedError is ErrInUse with the path and what to do.
type usedError struct{ path string }

func (e usedError) Error() string {
	return fmt.Sprintf("another agent serves %s: stop it, or give this one a different paths.statusSocket", e.path)
}

func (usedError) Unwrap() error { return ErrInUse }

func inUse(path string) error { return usedError{path} }

// sweep removes the socket a dead process left behind, and nothing else.
func sweep(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != os.ModeSocket:
		return fmt.Errorf("%s exists and is not a socket: remove it, or configure a different paths.statusSocket", path)
	}
	c, err := (&net.Dialer{Timeout: clientTimeout}).DialContext(ctx, "unix", path)
	if err == nil {
		_ = c.Close()
		return inUse(path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("see whether %s is in use: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove the socket a dead agent left: %w", err)
	}
	return nil
}
