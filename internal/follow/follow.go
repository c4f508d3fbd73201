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
	// MaxWait is the longest time from a change to the call of Read, for directories that change all the time.
	MaxWait time.Duration
	// Recheck is the interval at which Run calls Read even without an inotify event. Without Recheck, Run would miss
	// changes after a watched directory was removed, and changes on network file systems, which send no events.
	Recheck time.Duration
	// Dirs returns the directories to watch. Run calls Dirs before each call of Read, and tries again to watch
	// directories that did not exist before.
	Dirs func() []string
	// Read is the function to call. Run calls it at the start, and after each change.
	Read func()
	// Signals is a channel of signals, such as SIGHUP. After each signal Run calls Read at once. A nil channel has no
	// effect.
	Signals <-chan os.Signal
}

// Run watches until ctx ends. It returns an error only if it cannot use inotify.
func (f DirWatcher) Run(ctx context.Context) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch files: %w", err)
	}
	defer w.Close()
	r := run{DirWatcher: f, watcher: w, watched: map[string]bool{}}
	r.watchAndRead()
	return r.loop(ctx)
}

// run is one run of a DirWatcher.
type run struct {
	DirWatcher

	watcher *fsnotify.Watcher
	watched map[string]bool // the directories that have a watch
}

// loop calls watchAndRead after changes and signals, and at the interval Recheck, until ctx ends.
func (r *run) loop(ctx context.Context) error {
	tick := time.NewTicker(r.Recheck)
	defer tick.Stop()
	quiet := time.NewTimer(0)
	quiet.Stop()
	defer quiet.Stop()
	var firstEvent time.Time // the time of the first event after the last call of Read; zero if there was no event
	// scheduleRead makes the timer call Read after QuietTime, or after the rest of MaxWait if that is shorter.
	scheduleRead := func() {
		now := time.Now()
		if firstEvent.IsZero() {
			firstEvent = now
		}
		quiet.Reset(min(r.QuietTime, max(0, r.MaxWait-now.Sub(firstEvent))))
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-r.watcher.Events:
			if !ok {
				return fsnotify.ErrClosed
			}
			scheduleRead()
		case _, ok := <-r.watcher.Errors:
			if !ok {
				return fsnotify.ErrClosed
			}
			scheduleRead() // inotify lost events, so files may have changed
		case <-tick.C:
			scheduleRead()
		case <-r.Signals:
			quiet.Reset(0)
		case <-quiet.C:
			firstEvent = time.Time{}
			r.watchAndRead()
		}
	}
}

// watchAndRead adds watches for the directories that exist, removes other watches, and calls Read. It adds a watch even
// for a directory that already has one, because the old watch reports nothing if another directory took the place of
// the watched one.
func (r *run) watchAndRead() {
	dirs := map[string]bool{}
	for _, dir := range r.Dirs() {
		dirs[dir] = true
	}
	for dir := range r.watched {
		if !dirs[dir] {
			_ = r.watcher.Remove(dir) // ignores the error: the directory was probably removed
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
