package nri

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/trimtab/trimtab/internal/follow"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/sleep"
)

// recheckInterval is how often the attachment polls for the socket in addition to inotify.
const recheckInterval = 10 * time.Second

// socketWatch reports when a socket file is created. The attachment then connects at once and does not wait for the
// end of a back-off.
type socketWatch struct {
	path     string
	last     os.FileInfo   // nil if the socket did not exist
	appeared chan struct{} // holds at most one token
}

func newSocketWatch(path string) *socketWatch {
	w := &socketWatch{path: path, appeared: make(chan struct{}, 1)}
	w.last, _ = os.Stat(path)
	return w
}

// run watches until ctx ends. Without inotify it polls.
func (w *socketWatch) run(ctx context.Context, log *slog.Logger) {
	if err := (follow.DirWatcher{Recheck: recheckInterval, Dirs: w.dirs, Read: w.poll}).Run(ctx); err != nil {
		log.Warn("the agent polls for the NRI socket", logkey.Err, err)
	}
}

// dirs returns the socket's directory, or its nearest parent that exists, and the directory above. The latter is
// needed because inotify reports nothing about a directory that was replaced while a process held the socket open.
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

// poll sends a value on appeared if the socket is another file than before.
func (w *socketWatch) poll() {
	now, err := os.Stat(w.path)
	if err != nil {
		w.last = nil
		return
	}
	if w.last == nil || !os.SameFile(now, w.last) || !now.ModTime().Equal(w.last.ModTime()) {
		sleep.Wake(w.appeared)
	}
	w.last = now
}
