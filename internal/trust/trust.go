// Package trust checks who owns, and who can write, the files and sockets that a process uses. These files and sockets
// affect every pod, so their owner must be root or the user of the process.
package trust

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// IsTrusted reports whether a user is root or the user of the process.
func IsTrusted(uid uint32) bool { return uid == 0 || int64(uid) == int64(os.Geteuid()) }

// CheckOwner returns an error if the owner of a file or socket is neither root nor the user of the process.
func CheckOwner(info fs.FileInfo) error {
	if st, ok := info.Sys().(*syscall.Stat_t); ok && !IsTrusted(st.Uid) {
		return fmt.Errorf("the owner is user %d, who is neither root nor the agent's user; change the owner with chown", st.Uid)
	}
	return nil
}

// CheckWriters returns an error if users other than root and the user of the process may write a file or directory, or
// if its owner is not known.
func CheckWriters(info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return errors.New("the owner is not known")
	case !IsTrusted(st.Uid):
		return fmt.Errorf("the owner is user %d, who is neither root nor the agent's user; change the owner with chown", st.Uid)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("the mode %v lets other users write; remove this right with chmod go-w", info.Mode().Perm())
	}
	return nil
}
