package cgroup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// FS is a tree of cgroup files. Paths are relative to the directory the
// hierarchies are mounted in: "cpuset/kubepods/podX/cpuset.cpus" in version 1,
// "kubepods.slice/…/cpu.max" in version 2.
type FS interface {
	// ReadFile returns the file's text.
	ReadFile(path string) ([]byte, error)
	// WriteFile writes data in one write, which is one transaction to the
	// kernel. It never creates a file.
	WriteFile(path string, data []byte) error
	// List returns the names of the directories directly below dir.
	List(dir string) ([]string, error)
}

// maxFile bounds what is read of one file. Control files are far smaller; only
// lists of processes come near it.
const maxFile = 1 << 20

// Real is the machine's cgroup tree. Neither ".." nor a symbolic link leads out
// of it; relative links inside, as cpu -> cpu,cpuacct, are followed.
type Real struct {
	root *os.Root
	dir  *os.File // the same directory
	// beneath opens by openat2 where the kernel has it; tests switch it off.
	beneath bool
}

// OpenRoot opens the tree below dir, usually /sys/fs/cgroup.
func OpenRoot(dir string) (*Real, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open cgroup root: %w", err)
	}
	self, err := root.Open(".")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open cgroup root: %w", err), root.Close())
	}
	return &Real{root: root, dir: self, beneath: true}, nil
}

// Close closes the root directory.
func (r *Real) Close() error { return errors.Join(r.dir.Close(), r.root.Close()) }

// ReadFile returns the file's text.
func (r *Real) ReadFile(path string) ([]byte, error) {
	f, err := r.open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// Control files answer whole in one read; the size stat reports is 0.
	buf := make([]byte, 256)
	n := 0
	for n < maxFile {
		m, err := f.Read(buf[n:])
		n += m
		if errors.Is(err, io.EOF) {
			return buf[:n], nil
		}
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: path, Err: cause(err)}
		}
		if n == len(buf) {
			buf = append(buf, make([]byte, len(buf))...)
		}
	}
	return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("file is too large")}
}

// WriteFile writes data in one write. The file must exist: neither created nor
// truncated, which kernel files do not need.
func (r *Real) WriteFile(path string, data []byte) error {
	f, err := r.open(path, os.O_WRONLY)
	if err != nil {
		return err
	}
	if _, err = f.Write(data); err != nil {
		err = &fs.PathError{Op: "write", Path: path, Err: cause(err)}
	}
	return errors.Join(err, f.Close())
}

// LookDir reports why path is no directory, or cannot be looked at.
func (r *Real) StatDir(path string) error {
	f, err := r.open(path, os.O_RDONLY|syscall.O_DIRECTORY)
	if err != nil {
		return err
	}
	_ = f.Close() // it is there
	return nil
}

// List returns the names of the directories directly below dir, sorted.
func (r *Real) List(dir string) ([]string, error) {
	entries, err := fs.ReadDir(r.root.FS(), dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Version is the version of a cgroup hierarchy.
type Version int

// The versions.
const (
	V1 Version = 1
	V2 Version = 2
)

// String returns "v1" or "v2".
func (v Version) String() string { return fmt.Sprintf("v%d", int(v)) }

// Detect reports which version a tree is. A hybrid host, with one directory per
// version 1 controller and version 2 beside them in "unified", is V1: there the
// controllers that matter are version 1.
func Detect(tree FS) (Version, error) {
	if _, err := tree.ReadFile("cgroup.controllers"); err == nil {
		return V2, nil
	}
	var last error
	for _, c := range []string{"cpuset", "cpu", "memory"} {
		if _, err := tree.List(c); err != nil {
			last = err
			continue
		}
		return V1, nil
	}
	return 0, fmt.Errorf("neither cgroup version 1 nor 2 is mounted: %w", last)
}
