package cpuclass

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// FS is a tree of files such as /sys/devices/system/cpu. Paths are relative to its root.
type FS interface {
	// Read returns the text of a file without spaces around it.
	Read(file string) (string, error)
	// Write writes a text in one write and never creates a file.
	Write(file, text string) error
	// List returns the names of the files and directories in a directory, sorted.
	List(dir string) ([]string, error)
}

// DirFS is a directory of this machine. It does not follow symbolic links to files outside the directory.
type DirFS struct{ root *os.Root }

// Open opens the tree at dir, usually /sys/devices/system/cpu.
func Open(dir string) (*DirFS, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the cpufreq and cpuidle files: %w", err)
	}
	return &DirFS{root: root}, nil
}

// Close closes the root.
func (r *DirFS) Close() error { return r.root.Close() }

// maxFileBytes limits the bytes that Read reads of one file. A sysfs file has at most one page of text.
const maxFileBytes = 64 << 10

// Read returns the text of a file.
func (r *DirFS) Read(file string) (string, error) {
	f, err := r.root.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes))
	return strings.TrimSpace(string(text)), err
}

// Write writes a text in one write.
func (r *DirFS) Write(file, text string) error {
	f, err := r.root.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// List returns the names of the files and directories in a directory.
func (r *DirFS) List(dir string) ([]string, error) {
	entries, err := fs.ReadDir(r.root.FS(), dir)
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// UnavailableFS returns a tree without files. All its methods return an error with the text of err. This error is never
// fs.ErrNotExist: callers would conclude from fs.ErrNotExist that the kernel lacks only this one file.
func UnavailableFS(err error) FS { return unavailableFS{errors.New(err.Error())} }

type unavailableFS struct{ err error }

func (m unavailableFS) Read(string) (string, error)   { return "", m.err }
func (m unavailableFS) Write(string, string) error    { return m.err }
func (m unavailableFS) List(string) ([]string, error) { return nil, m.err }
