package relay_test

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// queued returns the number of written bytes that the other end has not read.
func queued(t *testing.T, raw syscall.RawConn) int {
	t.Helper()
	n := 0
	var errno error
	if err := raw.Control(func(fd uintptr) { n, errno = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); err != nil || errno != nil {
		t.Fatal(err, errno)
	}
	return n
}
