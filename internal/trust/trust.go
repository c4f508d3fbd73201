// Package trust decides whose files and sockets a process uses. What they say decides about every pod, so their
// owner must be root or the user of the process.
package trust

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// User reports whether a user is root or the user of the process.
func User(uid uint32) bool { return uid == 0 || int64(uid) == int64(os.Geteuid()) }

// CheckOwner returns why the owner of a file or socket is not trusted; nil if it is.
func CheckOwner(info fs.FileInfo) error {
	if st, ok := info.Sys().(*syscall.Stat_t); ok && !User(st.Uid) {
		return fmt.Errorf("it belongs to user %d, neither root nor the agent's; run chown", st.Uid)
	}
	return nil
}

// Writers returns why a file or directory is not trusted: other users could write it; nil if it is trusted.
func Writers(info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return errors.New("its owner is not known")
	case !User(st.Uid):
		return fmt.Errorf("it belongs to user %d, not to root", st.Uid)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("its mode %v lets others write it", info.Mode().Perm())
	}
	return nil
}
