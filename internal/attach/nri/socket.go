package nri

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/follow"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// recheck is how often the socket is looked at without a notice.
const recheck = 10 * time.Second

// socketWatch reports when a socket file is created, so that a runtime that
// comes back is not kept waiting for the back-off.
type socketWatch struct {
	path     string
	last     os.FileInfo   // nil where it was not there
	appeared chan struct{} // holds at most one token
}

func newSocketWatch(path string) *socketWatch {
	w := &socketWatch{path: path, appeared: make(chan struct{}, 1)}
	w.last, _ = os.Stat(path)
	return w
}

// run watches until ctx ends. Without inotify there is only polling.
func (w *socketWatch) run(ctx context.Context, log *slog.Logger) {
	if err := (follow.Follower{Recheck: recheck, Dirs: w.dirs, Look: w.look}).Run(ctx); err != nil {
		log.Warn("nri socket is polled for", logkey.Err, err)
	}
}

// dirs are the socket's directory, or the nearest parent that exists, and the one above
// it: a directory whose socket is still open somewhere can be replaced without a word
// from its own watch.
func (w *socketWatch) dirs() []string {
	dir := filepath.Dir(filepath.Clean(w.path))
	for up := filepath.Dir(dir); up != dir; up = filepath.Dir(dir) {
		if fi, err := os.Stat(dir); err == nil && fi.IsDir() {
			break
		}
		dir = up
	}
	return []string{dir, filepath.Dir(dir)}
}

// look reports where the socket is another one than before.
func (w *socketWatch) look() {
	now, err := os.Stat(w.path)
	if err != nil {
		w.last = nil
		return
	}
	if w.last == nil || !os.SameFile(now, w.last) || !now.ModTime().Equal(w.last.ModTime()) {
		connect.Poke(w.appeared)
	}
	w.last = now
}
