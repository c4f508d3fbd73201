package config

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settle is how long a directory must be quiet before the file is read: a
	// half-written file can be valid YAML that says less than was meant.
	settle = 100 * time.Millisecond
	// patience bounds settle in a directory that is never quiet.
	patience = 2 * time.Second
	// recheck is how often the file is looked at without having been told: a
	// watch dies with its directory and is blind on some network file systems.
	recheck = 10 * time.Second
)

// A Follower hands on every new configuration a file holds.
type Follower struct {
	File string
	// InForce is the configuration loaded from File before following it. Nil,
	// the first valid content is applied.
	InForce *Config
	// Override, where not nil, puts what stands above the file (flags) over
	// each configuration read from it.
	Override func(*Config)
	// Apply puts a configuration in force. Where it fails, the one before
	// stays, and the new one is not tried again until the file changes.
	Apply func(Config) error
	// Report is told why the newest content of the file is not in force, once
	// per reason, with all problems; and nil when it is in force again.
	Report func(error)
}

// Follow hands every new configuration in file to apply, the first included,
// and to report why one is not in force (see Follower). It blocks until ctx
// ends and fails only where nothing can be watched.
func Follow(ctx context.Context, file string, apply func(Config) error, report func(error)) error {
	return Follower{File: file, Apply: apply, Report: report}.Run(ctx)
}

// Run follows the file until ctx ends. It watches directories, not the file:
// ConfigMap volumes and careful editors replace it.
func (f Follower) Run(ctx context.Context) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("follow %s: %w", f.File, err)
	}
	defer w.Close()
	r := follow{Follower: f, watcher: w, watched: map[string]bool{}}
	r.look()
	return r.loop(ctx)
}

// follow is one run of a Follower.
type follow struct {
	Follower

	watcher  *fsnotify.Watcher
	watched  map[string]bool
	content  []byte // of the file as last read
	read     bool
	reported string // the reason last reported, "" for none
}

func (r *follow) loop(ctx context.Context) error {
	tick := time.NewTicker(recheck)
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
		quiet.Reset(min(settle, max(0, patience-now.Sub(since))))
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-r.watcher.Events:
			if !ok {
				return fmt.Errorf("follow %s: %w", r.File, fsnotify.ErrClosed)
			}
			poke()
		case _, ok := <-r.watcher.Errors:
			if !ok {
				return fmt.Errorf("follow %s: %w", r.File, fsnotify.ErrClosed)
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

// look reads the file and acts where its content is new.
func (r *follow) look() {
	r.watch()
	data, err := read(r.File)
	if err != nil {
		// Back with the same content, it must be found in force again.
		r.read = false
		r.report(fmt.Errorf("%w; the configuration in force stays", err))
		return
	}
	if r.read && bytes.Equal(data, r.content) {
		return
	}
	r.read, r.content = true, data
	c, err := Parse(r.File, data)
	if err != nil {
		r.report(fmt.Errorf("%w\nthe configuration in force stays", err))
		return
	}
	if r.Override != nil {
		r.Override(&c)
		if err := refuse(Validate(c)); err != nil {
			r.report(fmt.Errorf("%s with what stands above it: %w", r.File, err))
			return
		}
	}
	if r.InForce == nil || !reflect.DeepEqual(c, *r.InForce) {
		if err := r.Apply(c); err != nil {
			r.report(fmt.Errorf("apply %s: %w", r.File, err))
			return
		}
		r.InForce = &c
	}
	r.report(nil)
}

// report tells a reason once, and its end.
func (r *follow) report(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == r.reported {
		return
	}
	r.reported = text
	r.Report(err)
}

// watch watches the file's directory and, where the file is a symbolic link,
// the directory of what it points at. Adding again revives a watch whose
// directory was replaced.
func (r *follow) watch() {
	dirs := map[string]bool{filepath.Dir(r.File): true}
	if real, err := filepath.EvalSymlinks(r.File); err == nil {
		dirs[filepath.Dir(real)] = true
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
}
