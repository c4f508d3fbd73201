package cgroup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// FS is a tree of cgroup files. Paths are relative to the directory where the hierarchies are
// mounted: "cpuset/kubepods/podX/cpuset.cpus" in version 1, "kubepods.slice/…/cpu.max" in
// version 2.
type FS interface {
	// ReadFile returns the file's text.
	ReadFile(path string) ([]byte, error)
	// WriteFile writes data in one write, which the kernel treats as one transaction. It never
	// creates a file.
	WriteFile(path string, data []byte) error
	// List returns the names of the directories directly below dir.
	List(dir string) ([]string, error)
}

// maxFileBytes limits the size of a file. ReadFile returns an error for a file that has maxFileBytes bytes or more.
// Only lists of processes can be so large.
const maxFileBytes = 1 << 20

// Real is the machine's cgroup tree. Neither ".." nor a symbolic link leads out of the tree; relative
// links inside the tree, such as cpu -> cpu,cpuacct, are followed.
type Real struct {
	root *os.Root
	dir  *os.File // the directory of root, opened a second time for openat2
	// usesOpenat2 means that files are opened with openat2 and RESOLVE_BENEATH if the kernel has openat2, and with
	// os.Root otherwise. It is false only in tests of os.Root.
	usesOpenat2 bool
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
	return &Real{root: root, dir: self, usesOpenat2: true}, nil
}

// Close closes the root directory of the tree.
func (r *Real) Close() error { return errors.Join(r.dir.Close(), r.root.Close()) }

// ReadFile returns the file's text.
func (r *Real) ReadFile(path string) ([]byte, error) {
	f, err := r.open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes))
	if err == nil && len(data) == maxFileBytes {
		err = fmt.Errorf("the file has at least %d bytes, which is too large", maxFileBytes)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: withoutPath(err)}
	}
	return data, nil
}

// WriteFile writes data in one write. The file must exist. WriteFile does not create or truncate
// it, because kernel files need neither.
func (r *Real) WriteFile(path string, data []byte) error {
	f, err := r.open(path, os.O_WRONLY)
	if err != nil {
		return err
	}
	if _, err = f.Write(data); err != nil {
		err = &fs.PathError{Op: "write", Path: path, Err: withoutPath(err)}
	}
	return errors.Join(err, f.Close())
}

// StatDir returns an error if path is not a directory or cannot be opened.
func (r *Real) StatDir(path string) error {
	f, err := r.open(path, os.O_RDONLY|syscall.O_DIRECTORY)
	if err != nil {
		return err
	}
	_ = f.Close() // the directory exists, whatever Close returns
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

// Detect returns the version of a tree. A hybrid host has one directory for each version 1
// controller, and version 2 in the directory "unified". For a hybrid host Detect returns V1,
// because the controllers that the agent uses are in version 1.
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
