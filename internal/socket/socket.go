// Package socket makes Unix sockets that have their final mode before other processes can connect, and connects to
// sockets of trusted users. Listen fails if the path exists. Claim removes the socket of a dead process, and reports a
// socket that is in use.
package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// Listen makes a Unix socket with the given mode. It sets the mode before it binds the socket, because Linux creates
// the socket file with this mode, less the umask (net/unix/af_unix.c, unix_bind_bsd). Other users can therefore not
// connect before the mode is set. Then Listen adds the bits that the umask removed.
func Listen(ctx context.Context, path string, mode fs.FileMode) (net.Listener, error) {
	mode = mode.Perm()
	conf := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var chmod error
		if err := c.Control(func(fd uintptr) { chmod = syscall.Fchmod(int(fd), uint32(mode)) }); err != nil {
			return err
		}
		return chmod
	}}
	l, err := conf.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	info, err := os.Lstat(path)
	if err == nil && info.Mode().Perm() != mode {
		err = os.Chmod(path, mode)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set the mode of socket %s to %04o: %w", path, mode, err), l.Close())
	}
	return l, nil
}
