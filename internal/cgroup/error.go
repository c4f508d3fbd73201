package cgroup

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"syscall"
)

// Error is a failed access to a cgroup file: the operation, the path, the text, and the
// reason.
type Error struct {
	Op    string // "read", "write", "encode", "verify", "release" or "repair"
	Path  string
	Value string // the text to write; "" for a read
	Err   error  // the kernel's error, or a reason that the agent found itself
}

// Error returns a text with the operation, the path, the value and the reason. If Hint has an explanation of the
// reason, Error adds this explanation.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op + " " + e.Path)
	if e.Op != "read" {
		b.WriteString(" " + strconv.Quote(shorten(e.Value)))
	}
	fmt.Fprintf(&b, ": %v", withoutPath(e.Err))
	if h := e.Hint(); h != "" {
		b.WriteString(" (" + h + ")")
	}
	return b.String()
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// Hint explains what an error code of the kernel usually means for this file. It returns "" if Err is not an error code
// of the kernel, or if there is no explanation.
func (e *Error) Hint() string {
	errno, ok := errors.AsType[syscall.Errno](e.Err)
	if !ok {
		return ""
	}
	file := path.Base(e.Path)
	for _, h := range hints {
		if h.errno == errno && (h.op == "" || h.op == e.Op) && strings.HasPrefix(file, h.prefix) {
			return h.text
		}
	}
	return ""
}

// hints are the explanations that Error.Hint can return. Error.Hint returns the first one that matches.
var hints = []struct {
	errno  syscall.Errno
	op     string // the operation; "" matches all
	prefix string // the first letters of the file's name
	text   string
}{
	{syscall.EACCES, "write", "cpuset.cpus", "the parent cgroup does not have all these CPUs"},
	{syscall.EACCES, "write", "cpuset.mems", "the parent cgroup does not have all these memory nodes"},
	{syscall.EBUSY, "write", "cpuset.", "a child cgroup still has CPUs or memory nodes that the write would remove"},
	{syscall.ENOSPC, "write", "cpuset.", "the set would be empty, and the cgroup has tasks"},
	{syscall.EINVAL, "write", "cpuset.cpus", "a CPU is not online, or the text is malformed"},
	{syscall.EINVAL, "write", "cpuset.mems", "a memory node has no memory, or the text is malformed"},
	{syscall.ERANGE, "write", "cpuset.", "an id is above the highest possible id of this machine"},
	{syscall.EOVERFLOW, "write", "cpuset.", "an id is above the highest possible id of any machine"},
	{syscall.EINVAL, "write", "cpu.cfs_burst", "the burst is above the quota"},
	{syscall.EINVAL, "write", "cpu.max.burst", "the burst is above the quota"},
	{syscall.EINVAL, "write", "cpu.cfs_", "the quota is above the parent's quota, below a child's quota or the burst, or out of range"},
	{syscall.EINVAL, "write", "cpu.max", "the quota is below the burst, or out of range"},
	{syscall.EINVAL, "write", "cpu.shares", "cpu.idle is 1 in this cgroup, or the text is malformed"},
	{syscall.EINVAL, "write", "cpu.weight", "cpu.idle is 1 in this cgroup, or the text is malformed"},
	{syscall.ERANGE, "write", "cpu.weight", "a weight must be 1 to 10000"},
	{syscall.EINVAL, "write", memswLimitFile, "the limit is below memory.limit_in_bytes, or the text is malformed"},
	{syscall.EBUSY, "write", "memory.", "the cgroup uses more than the limit, and the kernel could not reclaim the memory"},
	{syscall.EINVAL, "write", "memory.limit", "the limit is above memory.memsw.limit_in_bytes, or the text is malformed"},
	{syscall.ENODEV, "write", "io.max", "no such disk"},
	{syscall.ENODEV, "write", "blkio.throttle.", "no such disk"},
	{syscall.EPERM, "write", "", "this is the cgroup of the agent's own container, and the mount option nsdelegate lets only the runtime write its files"},
	{syscall.EROFS, "", "", "the cgroup tree is mounted read-only"},
	{syscall.ENODEV, "", "", "the cgroup was removed meanwhile"},
}

// IsNotExist reports whether an error means that a cgroup or its file does not exist, because the cgroup was removed or
// is not created yet.
func IsNotExist(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENODEV)
}

// RuntimeOnly reports whether a write failed because only the runtime can write the file. This is
// so if the cgroup is the root of this process's cgroup namespace and the hierarchy is mounted
// with nsdelegate: then the kernel lets only programs outside of this namespace write the files.
func RuntimeOnly(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Op == "write" && errors.Is(e.Err, syscall.EPERM)
}

// withoutPath returns the kernel's error code that err contains, or err itself if it contains no such code. The text of
// an fs.PathError also has the path, but the caller's message has the path already.
func withoutPath(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}
