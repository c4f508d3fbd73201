// Package follow watches directories, and calls a function when files in them may have changed. It reads no files.
package follow

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/fsnotify/fsnotify"
)

// DirWatcher has the directories to watch, and the function to call. Recheck, Dirs and Read are required.
type DirWatcher struct {
	// QuietTime is how long the directories must be unchanged after a change before Run calls Read, because
	// another program may still be writing.
	QuietTime time.Duration
	// MaxWait limits that wait, for directories that change all the time.
	MaxWait time.Duration
	// Recheck is the interval at which Run calls Read even without an inotify event. It is needed because a watch ends
	// when its directory is removed, and because some network file systems report no changes.
	Recheck time.Duration
	// Dirs returns the directories to watch. Run calls it before each call of Read, and then tries again to watch
	// directories that were missing.
	Dirs func() []string
	// Read is the function to call. Run calls it at the start, and after each change.
	Read func()
	// Now is a channel of signals, such as SIGHUP. At each signal Run calls Read at once. Now may be nil.
	Now <-chan os.Signal
}

// Run watches until ctx ends. It returns an error only if it cannot use inotify.
func (f DirWatcher) Run(ctx context.Context) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch files: %w", err)
	}
	defer w.Close()
	r := run{DirWatcher: f, watcher: w, watched: map[string]bool{}}
	r.readAll()
	return r.loop(ctx)
}

// run is one run of a DirWatcher.
type run struct {
	DirWatcher

	watcher *fsnotify.Watcher
	watched map[string]bool // the directories that have a watch
}

func (r *run) loop(ctx context.Context) error {
	tick := time.NewTicker(r.Recheck)
	defer tick.Stop()
	quiet := time.NewTimer(0)
	quiet.Stop()
	defer quiet.Stop()
	var since time.Time // time of the first event after the last call of Read; zero if there was none
	poke := func() {
		now := time.Now()
		if since.IsZero() {
			since = now
		}
		quiet.Reset(min(r.QuietTime, max(0, r.MaxWait-now.Sub(since))))
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-r.watcher.Events:
			if !ok {
				return fsnotify.ErrClosed
			}
			poke()
		case _, ok := <-r.watcher.Errors:
			if !ok {
				return fsnotify.ErrClosed
			}
			poke() // the queue lost events: call Read
		case <-tick.C:
			poke()
		case <-r.Now:
			quiet.Reset(0)
		case <-quiet.C:
			since = time.Time{}
			r.readAll()
		}
	}
}

// readAll adds watches for the directories that exist, removes other watches, and calls Read. It also adds watches that
// exist already, because a directory may have been replaced: its old watch then reports nothing.
func (r *run) readAll() {
	dirs := map[string]bool{}
	for _, dir := range r.Dirs() {
		dirs[dir] = true
	}
	for dir := range r.watched {
		if !dirs[dir] {
			_ = r.watcher.Remove(dir) // most likely the directory is gone already
			delete(r.watched, dir)
		}
	}
	for dir := range dirs {
		if err := r.watcher.Add(dir); err == nil {
			r.watched[dir] = true
		} else {
			delete(r.watched, dir) // the recheck tries again
		}
	}
	r.Read()
}
