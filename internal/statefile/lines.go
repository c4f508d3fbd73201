package statefile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// ErrClosed is the error of Append if OpenLines could not open the file, or if Close closed the file.
var ErrClosed = errors.New("the file is not open")

// Lines is a file of lines below a header line. The lines survive the end of the process, because they are in the
// kernel's page cache. They need not survive a crash of the machine, because the agent does not use lines from before a
// reboot. So the package does not sync the file to the disk.
type Lines struct {
	dir          *Dir
	name, header string

	mu         sync.Mutex
	file       File // nil if the file could not be opened, or was closed
	incomplete bool // possibly the last line is incomplete, so Append first ends this line
	// unreadable reports whether the file of an earlier process could not be read. Replace renames that file before it
	// writes a new file.
	unreadable bool
}

// OpenLines opens a file of lines. The result earlier has the lines that an earlier process wrote below the same
// header. earlier is nil if there is no readable file, and empty if the file has another header. The result alone is
// true if no other process has locked the file. If OpenLines returns an error, the caller can still use the Lines,
// because Replace opens the file again.
func OpenLines(dir *Dir, name, header string) (l *Lines, earlier []byte, alone bool, err error) {
	l = &Lines{dir: dir, name: name, header: header}
	err = readWithRetries(func() (err error) {
		earlier, alone, err = l.open(os.O_RDWR | os.O_CREATE | os.O_APPEND)
		return err
	})
	if err != nil && !errors.Is(err, ErrUntrusted) {
		// The file may be readable, although it cannot be opened for writing. So try to open it only for reading.
		again := readWithRetries(func() (err error) {
			earlier, alone, err = l.open(os.O_RDONLY)
			return err
		})
		switch {
		case errors.Is(again, fs.ErrNotExist):
			earlier, alone = nil, true
		case again != nil:
			l.unreadable = true
		}
	}
	if err != nil {
		l.unreadable = l.unreadable || errors.Is(err, ErrUntrusted)
		return l, earlier, alone || l.unreadable, fmt.Errorf("open %s: %w", dir.Path(name), err)
	}
	if l.file == nil && alone {
		err = l.Replace(nil)
	}
	return l, earlier, alone, err
}

// open opens, locks and reads the file. The file stays open if it has the expected header and flag allows writing.
func (l *Lines) open(flag int) (earlier []byte, alone bool, err error) {
	f, err := l.dir.open(l.name, flag)
	if err != nil {
		return nil, false, err
	}
	alone, err = f.Lock()
	var all []byte
	if err == nil {
		all, err = readAll(f, l.dir.Path(l.name))
	}
	if err != nil {
		return nil, false, errors.Join(err, f.Close())
	}
	firstLine, rest, complete := bytes.Cut(all, []byte("\n"))
	ours := complete && string(firstLine) == l.header
	if ours && flag != os.O_RDONLY {
		l.file, l.incomplete = f, all[len(all)-1] != '\n'
	} else {
		_ = f.Close() // no data is lost, because nothing was written
	}
	switch {
	case ours:
		return rest, alone, nil
	case len(all) > 0:
		return []byte{}, alone, nil
	}
	return nil, alone, nil
}

// Append adds complete lines to the file. If Append fails, some of the lines can be in the file.
func (l *Lines) Append(lines []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return ErrClosed
	}
	info, err := l.file.Stat()
	if err == nil && isRemoved(info) {
		err = fmt.Errorf("append to %s: the file was removed: %w", l.dir.Path(l.name), fs.ErrNotExist)
	}
	if err != nil {
		return err
	}
	if l.incomplete {
		lines = append([]byte("\n"), lines...)
	}
	err = writeAll(l.file, lines)
	l.incomplete = err != nil
	return err
}

// Replace replaces all lines: it writes a new file and renames it. It also works if OpenLines could not open the file.
func (l *Lines) Replace(lines []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unreadable {
		if _, err := l.dir.RenameDamaged(l.name); err != nil {
			return err
		}
		l.unreadable = false
	}
	f, err := l.dir.replace(l.name, func(f File) error {
		if held, err := f.Lock(); err != nil || !held {
			return errors.Join(errors.New("the agent cannot lock the new file"), err)
		}
		return writeAll(f, append([]byte(l.header+"\n"), lines...))
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", l.dir.Path(l.name), err)
	}
	if l.file != nil {
		_ = l.file.Close() // the replaced file, which no longer has a name
	}
	l.file, l.incomplete = f, false
	return nil
}

// Close closes the file and keeps its content.
func (l *Lines) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	f := l.file
	l.file = nil
	return f.Close()
}
