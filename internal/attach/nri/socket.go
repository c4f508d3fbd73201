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

// socketWatch reports when the runtime creates its socket file. The attachment then connects at once and does not wait
// for the end of a pause between attempts.
type socketWatch struct {
	path          string        // the path of the runtime's socket
	lastInfo      os.FileInfo   // nil if the socket did not exist
	socketCreated chan struct{} // gets a value when the socket was created; holds at most one value
}

// newSocketWatch returns a watch that reports a socket at the path that is created after this call.
func newSocketWatch(path string) *socketWatch {
	w := &socketWatch{path: path, socketCreated: make(chan struct{}, 1)}
	w.lastInfo, _ = os.Stat(path)
	return w
}

// run watches the socket until ctx ends. If it cannot use inotify, it logs that and returns. The attachment then looks
// for the socket only after each pause between its attempts to connect.
func (w *socketWatch) run(ctx context.Context, log *slog.Logger) {
	if err := (follow.DirWatcher{Recheck: recheckInterval, Dirs: w.dirs, Read: w.poll}).Run(ctx); err != nil {
		log.Warn("the agent cannot watch for the NRI socket with inotify, so it polls for the socket", logkey.Err, err)
	}
}

// dirs returns the directories to watch: the socket's directory, or the nearest parent that exists, and the directory
// above that one. The second directory is needed because inotify reports nothing if the first directory is replaced
// while a process holds the socket open.
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

// poll sends a value on socketCreated if the socket exists and is another file than at the last call.
func (w *socketWatch) poll() {
	now, err := os.Stat(w.path)
	if err != nil {
		w.lastInfo = nil
		return
	}
	if w.lastInfo == nil || !os.SameFile(now, w.lastInfo) || !now.ModTime().Equal(w.lastInfo.ModTime()) {
		sleep.Wake(w.socketCreated)
	}
	w.lastInfo = now
}
