// Package follow calls a function whenever files may have changed. It knows
// nothing of what is in them.
package follow

import (
	"context"
	"fmt"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Follower says what is followed. Dirs and Look are required.
type Follower struct {
	// Settle is how long the directories must be quiet before Look is called:
	// somebody may still be writing.
	Settle time.Duration
	// Patience bounds Settle in a directory that is never quiet.
	Patience time.Duration
	// Recheck is how often Look is called without having been told of anything:
	// a watch dies with its directory and is blind on some network file systems.
	Recheck time.Duration
	// Dirs are the directories to watch, asked for anew before each look. One
	// that is not there is tried again at the next.
	Dirs func() []string
	// Look is called first at once.
	Look func()
}

// Run follows until ctx ends, and fails only where nothing can be watched.
func (f Follower) Run(ctx context.Context) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch files: %w", err)
	}
	defer w.Close()
	r := run{Follower: f, watcher: w, watched: map[string]bool{}}
	r.look()
	return r.loop(ctx)
}

// run is one run of a Follower.
type run struct {
	Follower

	watcher *fsnotify.Watcher
	watched map[string]bool
}

func (r *run) loop(ctx context.Context) error {
	tick := time.NewTicker(r.Recheck)
	defer tick.Stop()
	quiet := time.NewTimer(0)
	quiet.Stop()
	defer quiet.Stop()
	var since time.Time // first event not looked at yet; zero for none
	poke := func() {
		now := time.Now()
		if since.IsZero() {
			since = now
		}
		quiet.Reset(min(r.Settle, max(0, r.Patience-now.Sub(since))))
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
			poke() // events were lost: look
		case <-tick.C:
			poke()
		case <-quiet.C:
			since = time.Time{}
			r.look()
		}
	}
}

// look watches what is to be watched now, and looks. Adding a directory again
// revives a watch whose directory was replaced.
func (r *run) look() {
	dirs := map[string]bool{}
	for _, dir := range r.Dirs() {
		dirs[dir] = true
	}
	for dir := range r.watched {
		if !dirs[dir] {
			_ = r.watcher.Remove(dir) // gone already, most likely
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
	r.Look()
}
