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

// Lines is a file of lines below a header line. It is not synced to the disk, because lines from before a
// reboot are not used. The page cache keeps the lines of a process that was killed.
type Lines struct {
	dir          *Dir
	name, header string

	mu         sync.Mutex
	file       File // nil if it could not be opened
	incomplete bool // the last line may be incomplete
	// unreadable reports whether the file of an earlier process could not be read. Replace renames that file before it
	// writes a new file.
	unreadable bool
}

// OpenLines opens a file of lines, and returns the lines that an earlier process wrote below the same header.
// earlier is nil if there is no readable file, and empty if the file has another header. alone reports
// whether no other process has locked the file. After an error the Lines can still be used, because Replace
// opens the file again.
func OpenLines(dir *Dir, name, head string) (l *Lines, earlier []byte, alone bool, err error) {
	l = &Lines{dir: dir, name: name, header: head}
	err = readWithRetries(func() (err error) {
		earlier, alone, err = l.open(os.O_RDWR | os.O_CREATE | os.O_APPEND)
		return err
	})
	if err != nil && !errors.Is(err, ErrUntrusted) {
		// The file may be readable, although it cannot be opened for writing.
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

// open opens, locks and reads the file. The file stays open if its header is right and it can be written.
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
	head, rest, whole := bytes.Cut(all, []byte("\n"))
	ours := whole && string(head) == l.header
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

// Append adds complete lines to the file. If it fails, the file may have some of them.
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

// Replace replaces all lines, and opens the file if that failed before.
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
			return errors.Join(errors.New("lock the new file"), err)
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
