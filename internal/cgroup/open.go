package cgroup

import (
	"errors"
	"io"
	"io/fs"

	"golang.org/x/sys/unix"
)

// errNoOpenat2 means that the caller must open the file through os.Root.
var errNoOpenat2 = errors.New("openat2 is not available")

// openBeneath opens a path below a directory in one system call; os.Root makes one call for each directory of the path.
// The kernel refuses with EXDEV a path that leads out of the directory: "..", absolute paths and links to the outside.
//
// openBeneath returns errNoOpenat2 if openat2 does not exist (before Linux 5.6), if a seccomp filter forbids it, or if
// a concurrent rename may have made the path lead outside (EAGAIN, openat2(2)).
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

// file is the descriptor of an open cgroup file. It avoids the cost of os.File's poller and finalizer.
type file int

// open opens a file or directory of the tree, with openat2 if the kernel has it and with os.Root otherwise.
func (r *Real) open(path string, flags int) (file, error) {
	if r.usesOpenat2 {
		fd, err := openBeneath(int(r.dir.Fd()), path, flags)
		if err == nil {
			return file(fd), nil
		}
		if !errors.Is(err, errNoOpenat2) {
			return -1, &fs.PathError{Op: "openat2", Path: path, Err: err}
		}
	}
	f, err := r.root.OpenFile(path, flags, 0)
	if err != nil {
		return -1, err
	}
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	return file(fd), err
}

func (f file) Read(p []byte) (int, error) {
	n, err := retryOnEINTR(func() (int, error) { return unix.Read(int(f), p) })
	if n == 0 && err == nil {
		return 0, io.EOF
	}
	return max(n, 0), err
}

// Write writes in one call, which a kernel file treats as one transaction.
func (f file) Write(p []byte) (int, error) {
	n, err := retryOnEINTR(func() (int, error) { return unix.Write(int(f), p) })
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return max(n, 0), err
}

func (f file) Close() error { return unix.Close(int(f)) }

// retryOnEINTR repeats a system call until no signal interrupts it.
func retryOnEINTR(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
