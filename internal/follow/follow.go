// Package follow calls a function when files may have changed. It knows nothing of
// their content.
package follow

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Follower says which directories to watch, and what to call. Dirs and Look are
// required.
type Follower struct {
	// Settle is how long the directories must be unchanged before Look is called:
	// another program may still be writing.
	Settle time.Duration
	// Patience limits Settle in a directory that always changes.
	Patience time.Duration
	// Recheck is how often Look is called without a notice: a watch ends with its
	// directory, and sees nothing on some network file systems.
	Recheck time.Duration
	// Dirs returns the directories to watch, before each call of Look. A missing
	// one is tried again at the next.
	Dirs func() []string
	// Look is called first at once.
	Look func()
	// Now calls Look at once, such as for SIGHUP; nil for never.
	Now <-chan os.Signal
}

// Run watches until ctx ends, and fails only if nothing can be watched.
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
	var since time.Time // first notice without a call of Look; zero for none
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
			poke() // notices were lost: call Look
		case <-tick.C:
			poke()
		case <-r.Now:
			quiet.Reset(0)
		case <-quiet.C:
			since = time.Time{}
			r.look()
		}
	}
}

// look watches the present directories, and calls Look. To add a directory again
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
