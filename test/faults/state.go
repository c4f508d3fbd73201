package faults

import (
	"io/fs"
	"syscall"

	"github.com/trimtab/trimtab/internal/statefile"
)

// errnoFault returns a fault with an error and no other effect.
func errnoFault(e syscall.Errno) Fault {
	return Fault{Kind: map[syscall.Errno]string{
		syscall.EIO: "EIO", syscall.ENOSPC: "ENOSPC", syscall.EROFS: "EROFS", syscall.EINTR: "EINTR", syscall.EMFILE: "EMFILE",
		syscall.ENOLCK: "ENOLCK", syscall.EBUSY: "EBUSY", syscall.ECONNRESET: "ECONNRESET", syscall.EPIPE: "EPIPE",
		syscall.ECONNREFUSED: "ECONNREFUSED", syscall.ENOBUFS: "ENOBUFS",
	}[e], Err: e}
}

// errnoFaults returns a fault for each of the errors.
func errnoFaults(all ...syscall.Errno) []Fault {
	var out []Fault
	for _, e := range all {
		out = append(out, errnoFault(e))
	}
	return out
}

// Faults of calls on state files. The calls that change a directory, or sync a file, have fileChangeFaults.
var (
	fileChangeFaults = errnoFaults(syscall.EIO, syscall.ENOSPC, syscall.EROFS, syscall.EINTR)
	fileOpenFaults   = append(errnoFaults(syscall.EMFILE), fileChangeFaults...)
	fileReadFaults   = errnoFaults(syscall.EIO, syscall.EINTR)
	fileLockFaults   = errnoFaults(syscall.EIO, syscall.ENOLCK)
	fileWriteFaults  = append([]Fault{{Kind: "short write", Short: true}, {Kind: "short write, ENOSPC", Short: true, Err: syscall.ENOSPC}}, fileChangeFaults...)
)

// Files returns state files whose calls fail as the plan says; the other calls go to inner.
func Files(p *Plan, inner statefile.FS) statefile.FS { return &files{p, inner} }

// files has the state files that Files returns.
type files struct {
	plan *Plan
	fs   statefile.FS
}

// fail returns the error of a call that the plan makes fail; nil for other calls.
func (f *files) fail(call, name string, kinds []Fault) error {
	if fault := f.plan.next("state "+call, kinds); fault.Err != nil {
		return &fs.PathError{Op: call, Path: name, Err: fault.Err}
	}
	return nil
}

func (f *files) Open(name string, flag int) (statefile.File, error) {
	if err := f.fail("open", name, fileOpenFaults); err != nil {
		return nil, err
	}
	under, err := f.fs.Open(name, flag)
	if err != nil {
		return nil, err
	}
	return &file{f, name, under}, nil
}

func (f *files) Rename(from, to string) error {
	if err := f.fail("rename", from, fileChangeFaults); err != nil {
		return err
	}
	return f.fs.Rename(from, to)
}

func (f *files) Remove(name string) error {
	if err := f.fail("remove", name, fileChangeFaults); err != nil {
		return err
	}
	return f.fs.Remove(name)
}

func (f *files) Make() error {
	if err := f.fail("mkdir", ".", fileChangeFaults); err != nil {
		return err
	}
	return f.fs.Make()
}

func (f *files) Names() ([]string, error) {
	if err := f.fail("list", ".", fileReadFaults); err != nil {
		return nil, err
	}
	return f.fs.Names()
}

// file is an open state file whose calls fail as the plan says.
type file struct {
	parent   *files // the state files that have this file
	name     string
	realFile statefile.File // the real file
}

func (f *file) Read(p []byte) (int, error) {
	if err := f.parent.fail("read", f.name, fileReadFaults); err != nil {
		return 0, err
	}
	return f.realFile.Read(p)
}

func (f *file) Write(p []byte) (int, error) {
	switch fault := f.parent.plan.next("state write", fileWriteFaults); {
	case fault.Short:
		n, err := f.realFile.Write(p[:len(p)/2])
		if err == nil && fault.Err != nil {
			err = &fs.PathError{Op: "write", Path: f.name, Err: fault.Err}
		}
		return n, err
	case fault.Err != nil:
		return 0, &fs.PathError{Op: "write", Path: f.name, Err: fault.Err}
	}
	return f.realFile.Write(p)
}

// Close closes the file even if the plan makes Close return an error, like the kernel.
func (f *file) Close() error {
	err := f.realFile.Close()
	if failed := f.parent.fail("close", f.name, fileChangeFaults); failed != nil {
		return failed
	}
	return err
}

// Sync does not wait for the disk, because the machine does not crash in the tests.
func (f *file) Sync() error { return f.parent.fail("sync", f.name, fileChangeFaults) }

func (f *file) Stat() (fs.FileInfo, error) {
	if err := f.parent.fail("stat", f.name, fileReadFaults); err != nil {
		return nil, err
	}
	return f.realFile.Stat()
}

func (f *file) Chmod(mode fs.FileMode) error {
	if err := f.parent.fail("chmod", f.name, fileChangeFaults); err != nil {
		return err
	}
	return f.realFile.Chmod(mode)
}

func (f *file) Lock() (bool, error) {
	if err := f.parent.fail("lock", f.name, fileLockFaults); err != nil {
		return false, err
	}
	return f.realFile.Lock()
}
