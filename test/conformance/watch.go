package conformance

import (
	"io/fs"
	"path"
	"sync"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/sim/kernel"
)

// Watcher reports changes of a fake kernel's cgroup tree, in place of inotify.
type Watcher struct {
	kernel        *kernel.Cgroups
	stopListening func()             // makes the fake kernel stop calling change
	out           chan cgroup.Notice // the channel that Notices returns

	mu      sync.Mutex      // guards the fields below
	watched map[string]bool // the watched directories
	lost    bool            // a change was lost, and no overflow has been reported since then
}

// queueSize is how many events a real kernel queues by default (fs.inotify.max_queued_events).
const queueSize = 16384

// Watch returns a Watcher of a fake kernel's tree. The caller closes it.
func Watch(k *kernel.Cgroups) *Watcher {
	w := &Watcher{kernel: k, out: make(chan cgroup.Notice, queueSize), watched: map[string]bool{}}
	w.stopListening = k.OnChange(w.change)
	return w
}

// change handles a change of a file or directory of the fake kernel. It sends a notice if the directory above is
// watched.
func (w *Watcher) change(file string, c cgroup.Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c == cgroup.Removed {
		delete(w.watched, file)
	}
	if !w.watched[path.Dir(file)] {
		return
	}
	n := cgroup.Notice{Path: file, Change: c}
	if w.lost {
		n = cgroup.Notice{Change: cgroup.Overflow}
	}
	select {
	case w.out <- n:
		w.lost = false
	default:
		w.lost = true
	}
}

// Add begins to watch a directory.
func (w *Watcher) Add(dir string) error {
	w.mu.Lock()
	w.watched[dir] = true
	w.mu.Unlock()
	if _, err := w.kernel.List(dir); err != nil {
		w.Remove(dir)
		return &fs.PathError{Op: "watch", Path: dir, Err: fs.ErrNotExist}
	}
	return nil
}

// Remove stops watching a directory.
func (w *Watcher) Remove(dir string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.watched, dir)
}

// Notices returns the channel that gets the changes, in the order in which they happened.
func (w *Watcher) Notices() <-chan cgroup.Notice { return w.out }

// Close stops the watcher.
func (w *Watcher) Close() error {
	w.stopListening()
	return nil
}
