package nri

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"

	"github.com/trimtab/trimtab/internal/report/logkey"
)

// socketWatch tells when a socket file is created, so that a runtime that
// comes back is not kept waiting for the back-off. Where the socket's directory
// does not exist yet it watches the nearest parent that does. The directory
// above is watched too: a directory whose socket is still open somewhere can be
// replaced without a word from its own watch.
type socketWatch struct {
	path     string
	appeared chan struct{} // holds at most one token
	watched  string        // the directory watched now, besides the one above
	done     sync.WaitGroup
}

// watchSocket watches until ctx ends. Without inotify there is only polling.
func watchSocket(ctx context.Context, path string, log *slog.Logger) *socketWatch {
	w := &socketWatch{path: filepath.Clean(path), appeared: make(chan struct{}, 1)}
	fs, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("nri socket is polled for", logkey.Err, err)
		return w
	}
	w.follow(fs)
	w.done.Go(func() {
		defer fs.Close()
		w.run(ctx, fs)
	})
	return w
}

// wait blocks until the watch has ended with its context.
func (w *socketWatch) wait() { w.done.Wait() }

func (w *socketWatch) run(ctx context.Context, fs *fsnotify.Watcher) {
	for {
		select {
		case <-ctx.Done():
			return
		case ev, ok := <-fs.Events:
			if !ok {
				return
			}
			w.see(fs, ev)
		case _, ok := <-fs.Errors: // an overflow: something may have been missed
			if !ok {
				return
			}
			w.tell()
		}
	}
}

func (w *socketWatch) see(fs *fsnotify.Watcher, ev fsnotify.Event) {
	created := ev.Has(fsnotify.Create)
	if !created && !ev.Has(fsnotify.Remove) && !ev.Has(fsnotify.Rename) {
		return
	}
	switch ev.Name {
	case w.path:
		if created {
			w.tell()
		}
	case w.watched:
		// Its name may be in use again already, by a directory not watched.
		w.unwatch(fs)
		w.follow(fs)
		w.tell()
	default:
		if w.follow(fs) {
			w.tell() // the socket may have been there before the watch
		}
	}
}

func (w *socketWatch) unwatch(fs *fsnotify.Watcher) {
	if w.watched != "" {
		_ = fs.Remove(w.watched) // gone by itself, where the directory is
		_ = fs.Remove(filepath.Dir(w.watched))
		w.watched = ""
	}
}

// follow watches the nearest existing directory above the socket, and tells
// whether that is another one than before.
func (w *socketWatch) follow(fs *fsnotify.Watcher) bool {
	moved := false
	for {
		dir := nearest(filepath.Dir(w.path))
		if dir == w.watched {
			return moved
		}
		w.unwatch(fs)
		if err := fs.Add(dir); err == nil {
			_ = fs.Add(filepath.Dir(dir)) // above it we may not be allowed to
			w.watched, moved = dir, true
		} else if nearest(dir) == dir {
			return moved // not allowed to: polling has to do
		}
	}
}

// nearest is dir or the closest parent of it that exists.
func nearest(dir string) string {
	for {
		if fi, err := os.Stat(dir); err == nil && fi.IsDir() {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return dir
		}
		dir = up
	}
}

func (w *socketWatch) tell() {
	select {
	case w.appeared <- struct{}{}:
	default:
	}
}
