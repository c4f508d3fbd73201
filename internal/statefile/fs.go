package statefile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// FS makes the file system calls for one directory. File names have no directory part. The name "." is the directory
// itself.
type FS interface {
	// Open opens a file. Only the owner can read a file that Open makes. Open fails for a symbolic link.
	Open(name string, flag int) (File, error)
	Rename(from, to string) error
	Remove(name string) error
	// Make makes the directory if the directory is missing.
	Make() error
	// Names lists the names of the files in the directory.
	Names() ([]string, error)
}

// File is an open file, or an open directory.
type File interface {
	io.ReadWriteCloser
	Sync() error
	Stat() (fs.FileInfo, error)
	Chmod(mode fs.FileMode) error
	// Lock takes the file's lock, which the kernel releases when the process ends. It returns false if another
	// process has the lock.
	Lock() (bool, error)
}

// disk implements FS for a directory on this machine's disk.
type disk struct {
	dir  string
	mode fs.FileMode // the mode of the directory, if Make makes it
}

// Disk returns an FS for a directory on this machine's disk. If Make makes the directory, only the owner can read it.
func Disk(dir string) FS { return disk{dir, 0o700} }

// SharedDisk returns an FS for a directory on this machine's disk. If Make makes the directory, all users can read it.
func SharedDisk(dir string) FS { return disk{dir, 0o755} }

func (d disk) Open(name string, flag int) (File, error) {
	// Without O_NONBLOCK, opening a named pipe would block.
	f, err := os.OpenFile(filepath.Join(d.dir, name), flag|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	return diskFile{f}, nil
}

func (d disk) Rename(from, to string) error {
	return os.Rename(filepath.Join(d.dir, from), filepath.Join(d.dir, to))
}

func (d disk) Remove(name string) error { return os.Remove(filepath.Join(d.dir, name)) }

func (d disk) Make() error { return os.MkdirAll(d.dir, d.mode) }

func (d disk) Names() ([]string, error) {
	entries, err := os.ReadDir(d.dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// diskFile implements File.
type diskFile struct{ *os.File }

// Lock takes the file's lock with flock. It returns false if another process has the lock.
func (f diskFile) Lock() (bool, error) {
	for {
		switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, unix.EINTR):
			return false, &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
		}
	}
}
