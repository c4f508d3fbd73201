package cgroup

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// errNoOpenat2 means that the caller must open the file through os.Root.
var errNoOpenat2 = errors.New("openat2 is not available")

// openBeneath opens a path below a directory in one system call; os.Root makes one for each
// directory of the path. The kernel refuses with EXDEV what would leave the directory: "..",
// absolute paths and links to the outside.
//
// It returns errNoOpenat2 if openat2 does not exist (before Linux 5.6), a seccomp filter
// forbids it, or it could not exclude that a concurrent rename leads outside (EAGAIN,
// openat2(2)).
func openBeneath(dir int, path string, flags int) (int, error) {
	if path == "" {
		return -1, unix.ENOENT
	}
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(dir, path, &how)
		switch err {
		case nil:
			return fd, nil
		case unix.EINTR:
		case unix.ENOSYS, unix.EPERM, unix.EAGAIN:
			return -1, errNoOpenat2
		default:
			return -1, err
		}
	}
}

// file is an open cgroup file: a descriptor, or an os.File of os.Root. A plain descriptor
// avoids the cost of os.File's poller and finalizer.
type file struct {
	fd   int
	file *os.File
}

func (r *Real) open(path string, flags int) (file, error) {
	if r.beneath {
		fd, err := openBeneath(int(r.dir.Fd()), path, flags)
		if err == nil {
			return file{fd: fd}, nil
		}
		if !errors.Is(err, errNoOpenat2) {
			return file{}, &fs.PathError{Op: "openat2", Path: path, Err: err}
		}
	}
	f, err := r.root.OpenFile(path, flags, 0)
	return file{file: f}, err
}

func (f file) Read(p []byte) (int, error) {
	if f.file != nil {
		return f.file.Read(p)
	}
	n, err := retried(func() (int, error) { return unix.Read(f.fd, p) })
	if n == 0 && err == nil {
		return 0, io.EOF
	}
	return max(n, 0), err
}

// Write writes in one call, which a kernel file treats as one transaction.
func (f file) Write(p []byte) (int, error) {
	if f.file != nil {
		return f.file.Write(p)
	}
	n, err := retried(func() (int, error) { return unix.Write(f.fd, p) })
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return max(n, 0), err
}

func (f file) Close() error {
	if f.file != nil {
		return f.file.Close()
	}
	return unix.Close(f.fd)
}

// retried repeats a call that a signal interrupted, as package os does.
func retried(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
