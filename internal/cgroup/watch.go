package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// Change is the kind of change of a directory or a file in a tree.
type Change int

// The kinds of changes.
const (
	Created  Change = iota // a directory appeared
	Removed                // a directory disappeared
	Written                // a file was written
	Overflow               // inotify lost events, so only a full scan shows what changed
)

// Notice is one change below a watched directory.
type Notice struct {
	Change Change
	Path   string // relative to the tree's root; for Written, the file's path
}

// Watcher reports changes in directories of a tree of cgroup files. Paths are relative to the root
// of the tree. A removed directory is not watched any more.
type Watcher interface {
	// Add begins to watch a directory.
	Add(dir string) error
	// Remove stops watching a directory. It has no effect if the directory is not watched.
	Remove(dir string)
	// Notices returns the channel that gets the changes, in the order in which they happened.
	Notices() <-chan Notice
	// Close stops the watcher. The channel of Notices stays open, and gets no more changes.
	Close() error
}

// inotify watches real directories.
type inotify struct {
	root       string            // the directory of the tree
	w          *fsnotify.Watcher // watches the directories
	notices    chan Notice       // the channel that Notices returns
	done       chan struct{}     // closed by Close
	forwarding sync.WaitGroup    // waits for the goroutine of forward
}

// maxQueued is how many notices can wait until the agent reads them. In addition, the kernel queues 16384 inotify
// events.
const maxQueued = 4096

// Watch makes a Watcher for directories below root, usually /sys/fs/cgroup. The caller closes it.
func Watch(root string) (Watcher, error) {
	w, err := fsnotify.NewBufferedWatcher(maxQueued)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", root, err)
	}
	i := &inotify{root: root, w: w, notices: make(chan Notice, maxQueued), done: make(chan struct{})}
	i.forwarding.Go(i.forward)
	return i, nil
}

// Add begins to watch a directory.
func (i *inotify) Add(dir string) error { return i.w.Add(filepath.Join(i.root, dir)) }

// Remove stops watching a directory. It has no effect if the directory is not watched.
func (i *inotify) Remove(dir string) { _ = i.w.Remove(filepath.Join(i.root, dir)) }

// Notices returns the channel that gets the changes, in the order in which they happened.
func (i *inotify) Notices() <-chan Notice { return i.notices }

// Close stops the watcher. The channel of Notices stays open, and gets no more changes.
func (i *inotify) Close() error {
	close(i.done)
	err := i.w.Close()
	i.forwarding.Wait()
	return err
}

// forward translates the events of fsnotify into notices until Close.
func (i *inotify) forward() {
	for {
		select {
		case <-i.done:
			return
		case e, ok := <-i.w.Events:
			if ok {
				i.translate(e)
			}
		case err := <-i.w.Errors:
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				i.send(Notice{Change: Overflow})
			}
		}
	}
}

// translate sends the notice for an event of fsnotify.
func (i *inotify) translate(e fsnotify.Event) {
	dir, ok := strings.CutPrefix(e.Name, i.root+"/")
	switch {
	case !ok:
	case e.Has(fsnotify.Create):
		i.send(Notice{Created, dir})
	case e.Has(fsnotify.Remove), e.Has(fsnotify.Rename):
		i.send(Notice{Removed, dir})
	case e.Has(fsnotify.Write):
		i.send(Notice{Written, dir})
	}
}

// send sends a notice to the channel of Notices. It waits while the channel is full, until Close.
func (i *inotify) send(n Notice) {
	select {
	case i.notices <- n:
	case <-i.done:
	}
}
