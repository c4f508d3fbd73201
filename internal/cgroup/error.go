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
// kernel's error.
type Error struct {
	Op    string // "read", "write", "encode", "verify"
	Path  string
	Value string // the text to write; "" for a read
	Err   error
}

// Error returns a text with the path, the value and the kernel's error, and explains well-known refusals.
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

// Unwrap returns the kernel's error.
func (e *Error) Unwrap() error { return e.Err }

// Hint explains what the kernel usually means by this refusal; "" if there is nothing to add.
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

// hints are the explanations of Error.Hint. The first one that matches counts.
var hints = []struct {
	errno      syscall.Errno
	op, prefix string // the operation, "" for all, and a prefix of the file's name
	text       string
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
	{syscall.EPERM, "write", "", "this is the agent's own container, and nsdelegate lets only the runtime write there"},
	{syscall.EROFS, "", "", "the cgroup tree is mounted read-only"},
	{syscall.ENODEV, "", "", "the cgroup was removed meanwhile"},
}

// IsNotExist reports whether an error means that a cgroup or its file does not exist: it was removed or is not created
// yet.
func IsNotExist(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENODEV)
}

// RuntimeOnly reports whether a write failed because the cgroup is the root of this process's
// cgroup namespace. If the hierarchy is mounted with nsdelegate, the kernel lets only programs
// outside of that namespace write there.
func RuntimeOnly(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Op == "write" && errors.Is(e.Err, syscall.EPERM)
}

// withoutPath returns the kernel's error code of an error. Its text lacks the path, which an fs.PathError repeats.
func withoutPath(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}
