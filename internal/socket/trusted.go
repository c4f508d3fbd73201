package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/internal/trust"
)

// DialTrusted connects to a Unix socket. It returns an error if the socket file, or the process that serves the socket,
// belongs neither to root nor to the user of this process.
func DialTrusted(ctx context.Context, path string) (net.Conn, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := CheckTrusted(path, info); err != nil {
		return nil, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := checkPeer(conn); err != nil {
		return nil, errors.Join(fmt.Errorf("socket %s is refused: %w", path, err), conn.Close())
	}
	return conn, nil
}

// CheckTrusted returns an error if a file is not a socket, or if neither root nor the user of this process owns it.
func CheckTrusted(path string, info fs.FileInfo) error {
	if info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("%s is not a socket", path)
	}
	if err := trust.CheckOwner(info); err != nil {
		return fmt.Errorf("socket %s is refused: %w", path, err)
	}
	return nil
}

// checkPeer returns an error if neither root nor the user of this process serves the socket. Another user may have
// replaced the socket after CheckTrusted has checked the file.
func checkPeer(conn net.Conn) error {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return errors.New("the connection is not over a Unix socket")
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var errno error
	if err := raw.Control(func(fd uintptr) { cred, errno = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return err
	}
	if errno != nil {
		return fmt.Errorf("read the user of the server: %w", errno)
	}
	if !trust.IsTrusted(cred.Uid) {
		return fmt.Errorf("user %d serves it, but only root and the user of this process may serve it", cred.Uid)
	}
	return nil
}
