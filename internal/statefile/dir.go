package statefile

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Dir is a directory of state files.
type Dir struct {
	fs   FS
	path string // for messages
}

// New returns the directory that fs accesses. The parameter path is the directory's path for messages.
func New(fs FS, path string) *Dir { return &Dir{fs: fs, path: path} }

// Path returns the path of a file, for messages.
func (d *Dir) Path(name string) string { return filepath.Join(d.path, name) }

// DamagedSuffix is the suffix that RenameDamaged adds to the name of a file.
const DamagedSuffix = ".damaged"

// maxFileSize limits the size, in bytes, of the files that the agent reads. The state of a node has a few megabytes.
const maxFileSize = 256 << 20

// Prepare makes the directory if it is missing. It returns ErrUntrusted if other users can create files in the
// directory. For each of the given file names, it removes incomplete copies of the file. An agent that was killed while
// it wrote the file leaves such a copy.
func (d *Dir) Prepare(names ...string) error {
	if err := d.fs.Make(); err != nil {
		return fmt.Errorf("make the directory: %w", err)
	}
	self, err := d.fs.Open(".", os.O_RDONLY)
	if err != nil {
		return fmt.Errorf("open the directory: %w", err)
	}
	info, err := self.Stat()
	if err = errors.Join(err, self.Close()); err != nil {
		return fmt.Errorf("read the directory's owner and mode: %w", err)
	}
	if err := checkTrustedDir(info); err != nil {
		return fmt.Errorf("directory %s: %w", d.path, err)
	}
	have, err := d.fs.Names()
	if err != nil {
		return nil //nolint:nilerr // the incomplete copies stay, which does no harm
	}
	for _, name := range names {
		for _, left := range have {
			if strings.HasPrefix(left, "."+name+"-") {
				_ = d.fs.Remove(left) // if the removal fails, the next start tries again
			}
		}
	}
	return nil
}

// Open opens a file for reading and writing, and makes it if it is missing. It returns ErrUntrusted if other users can
// write the file.
func (d *Dir) Open(name string) (File, error) { return d.open(name, os.O_RDWR|os.O_CREATE) }

// open opens a file. It returns ErrUntrusted if other users can write the file, or if it is a symbolic link.
func (d *Dir) open(name string, flag int) (File, error) {
	f, err := d.fs.Open(name, flag)
	if isLink(err) {
		return nil, fmt.Errorf("%s: %w: it is a symbolic link", d.Path(name), ErrUntrusted)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = checkTrusted(info, 0o022)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", d.Path(name), err), f.Close())
	}
	return f, nil
}

// Read returns the content of a file. It returns ErrUntrusted if other users can write the file.
func (d *Dir) Read(name string) ([]byte, error) { return d.read(name, 0o022) }

// ReadSecret returns the content of a file that has a secret. It returns ErrUntrusted if other users can write or read
// the file.
func (d *Dir) ReadSecret(name string) ([]byte, error) { return d.read(name, 0o077) }

// read reads a file, and repeats failed reads. The file's mode must not have the bits in forbidden.
func (d *Dir) read(name string, forbidden fs.FileMode) (data []byte, err error) {
	err = readWithRetries(func() error {
		data, err = d.readOnce(name, forbidden)
		return err
	})
	return data, err
}

// readOnce reads a file once. The file's mode must not have the bits in forbidden.
func (d *Dir) readOnce(name string, forbidden fs.FileMode) ([]byte, error) {
	f, err := d.open(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		err = checkTrusted(info, forbidden)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Path(name), err)
	}
	return readAll(f, d.Path(name))
}

// readAll reads the content of an open file. It returns an error if the file is larger than maxFileSize.
func readAll(f File, path string) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	buf := bytes.NewBuffer(make([]byte, 0, min(info.Size(), maxFileSize)+bytes.MinRead)) // large enough, so that ReadFrom does not reallocate the buffer
	_, err = buf.ReadFrom(io.LimitReader(f, maxFileSize+1))
	data := buf.Bytes()
	if err == nil && len(data) > maxFileSize {
		err = fmt.Errorf("the file %s is longer than %d MiB", path, maxFileSize>>20)
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}

// Write replaces the content of a file atomically: after a crash the file has the old or the new content. It makes
// the directory if it is missing. Only the owner can read the file.
func (d *Dir) Write(name string, data []byte) error { return d.write(name, data, 0o600) }

// Remove removes a file.
func (d *Dir) Remove(name string) error { return d.fs.Remove(name) }

// WriteShared replaces the content of a file atomically, as Write does. All users can read the file.
func (d *Dir) WriteShared(name string, data []byte) error { return d.write(name, data, 0o644) }

func (d *Dir) write(name string, data []byte, mode fs.FileMode) error {
	f, err := d.replace(name, func(f File) error {
		err := writeAll(f, data)
		if err == nil && mode != 0o600 {
			err = f.Chmod(mode)
		}
		if err == nil {
			err = f.Sync()
		}
		return err
	})
	if err == nil {
		err = errors.Join(f.Close(), d.syncSelf())
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", d.Path(name), err)
	}
	return nil
}

// replace creates a new file, lets the function fill write its content, and renames it to the given name. So it
// replaces an older file with this name. It returns the open new file. If replace fails, the older file stays.
func (d *Dir) replace(name string, fill func(File) error) (File, error) {
	f, err := d.replaceOnce(name, fill)
	if errors.Is(err, fs.ErrNotExist) && d.fs.Make() == nil {
		f, err = d.replaceOnce(name, fill)
	}
	return f, err
}

// replaceOnce does what replace does, but does not make a missing directory.
func (d *Dir) replaceOnce(name string, fill func(File) error) (File, error) {
	fresh := "." + name + "-" + rand.Text()[:10]
	f, err := d.fs.Open(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND)
	if err != nil {
		return nil, err
	}
	if err = fill(f); err == nil {
		err = d.fs.Rename(fresh, name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), d.fs.Remove(fresh))
	}
	return f, nil
}

// writeAll writes data. It returns an error if only a part of data was written.
func writeAll(f io.Writer, data []byte) error {
	n, err := f.Write(data)
	if err == nil && n < len(data) {
		err = io.ErrShortWrite
	}
	return err
}

// syncSelf syncs the directory to the disk, so that a rename in the directory survives a crash of the machine.
func (d *Dir) syncSelf() error {
	self, err := d.fs.Open(".", os.O_RDONLY)
	if err != nil {
		return err
	}
	return errors.Join(self.Sync(), self.Close())
}

// RenameDamaged adds DamagedSuffix to the name of a file that must not be used, and returns the new path. It
// overwrites a file that already has the new name. If the file does not exist, it returns no error.
func (d *Dir) RenameDamaged(name string) (string, error) {
	err := d.fs.Rename(name, name+DamagedSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("rename the damaged file %s to %s: %w", d.Path(name), name+DamagedSuffix, err)
	}
	return d.Path(name + DamagedSuffix), err
}
