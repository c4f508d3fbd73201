package qrm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registry "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/trimtab/trimtab/internal/follow"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/socket"
)

const (
	// quietTime and maxQuietWait: a directory is read when it has not changed for quietTime, at the latest
	// after maxQuietWait.
	quietTime    = 50 * time.Millisecond
	maxQuietWait = 400 * time.Millisecond
	// recheck is how often the directories are read without an event of inotify.
	recheck = time.Second
	// maxSockets limits how many sockets of one directory are called.
	maxSockets = 256
	// pluginType is the type that plugins of this protocol report.
	pluginType = "ResourcePlugin"
)

// found is one socket of a watched directory.
type found struct {
	inode uint64
	made  int64 // of the inode's last change, in ns
}

// watcher knows which sockets of the watched directories were asked for their identity.
type watcher struct {
	m *Manager

	mu    sync.Mutex // guards asked
	asked map[string]found
}

// watch finds the sockets of plugins until ctx ends.
func (m *Manager) watch(ctx context.Context) error {
	w := &watcher{m: m, asked: map[string]found{}}
	f := follow.Follower{
		QuietTime: quietTime, MaxWait: maxQuietWait, Recheck: recheck,
		Dirs: func() []string { return m.o.Watch }, Read: func() { w.look(ctx) },
	}
	if err := f.Run(ctx); err != nil {
		m.o.Log.Error("the agent cannot watch the directories of resource plugins", logkey.Err, err)
	}
	return nil
}

// present returns the sockets of the watched directories.
func (w *watcher) present() map[string]found {
	out := map[string]found{}
	for _, dir := range w.m.o.Watch {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // a missing directory is normal until the first plugin starts
		}
		for _, e := range entries[:min(len(entries), maxSockets)] {
			info, err := e.Info()
			if err != nil || info.Mode().Type() != os.ModeSocket || e.Name() == socketName {
				continue
			}
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				out[filepath.Join(dir, e.Name())] = found{st.Ino, st.Ctim.Nano()}
			}
		}
	}
	return out
}

// look asks new sockets for their identity, and drops plugins whose sockets have disappeared.
func (w *watcher) look(ctx context.Context) {
	present := w.present()
	w.mu.Lock()
	var news []string
	for path, f := range present {
		if w.asked[path] != f {
			news = append(news, path)
			w.asked[path] = f
		}
	}
	for path := range w.asked {
		if _, there := present[path]; !there {
			delete(w.asked, path)
			w.m.drop(path)
		}
	}
	w.mu.Unlock()
	slices.Sort(news)
	var all sync.WaitGroup
	for _, path := range news { // a socket that hangs must not delay the others
		all.Go(func() {
			if !w.ask(ctx, path) {
				w.mu.Lock()
				delete(w.asked, path) // the next call asks it again
				w.mu.Unlock()
			}
		})
	}
	all.Wait()
}

// ask asks the process at a socket for its identity, and registers the plugin. answered is false if there
// was no answer.
func (w *watcher) ask(ctx context.Context, path string) (answered bool) {
	ctx, cancel := context.WithTimeout(ctx, w.m.o.Timeout)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(socket.DialTrusted), grpc.WithNoProxy(), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxRequest)))
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	client := registry.NewRegistrationClient(conn)
	info, err := client.GetInfo(ctx, &registry.InfoRequest{})
	if err != nil {
		w.m.o.Log.Debug("a plugin at a socket did not report its identity", logkey.Socket, path, logkey.Err, err)
		return false
	}
	if info.GetType() != pluginType {
		return true
	}
	err = w.register(ctx, path, info)
	state := &registry.RegistrationStatus{PluginRegistered: err == nil}
	if err != nil {
		state.Error = err.Error()
	}
	if _, err := client.NotifyRegistrationStatus(ctx, state); err != nil {
		w.m.o.Log.Debug("the agent could not notify a plugin of its registration", logkey.Socket, path, logkey.Err, err)
	}
	return true
}

func (w *watcher) register(ctx context.Context, path string, info *registry.PluginInfo) error {
	r := registration{resource: info.GetName(), socket: path, watched: true, version: version}
	if e := strings.TrimPrefix(info.GetEndpoint(), "unix://"); e != "" {
		r.socket = filepath.Clean(e)
	}
	var err error
	switch {
	case !slices.Contains(info.GetSupportedVersions(), version):
		err = fmt.Errorf("it supports versions %s: want %s", short(strings.Join(info.GetSupportedVersions(), ", ")), version)
	case filepath.Dir(r.socket) != filepath.Dir(path):
		err = fmt.Errorf("endpoint %s is outside of the watched directory", short(r.socket))
	default:
		return w.m.register(ctx, r)
	}
	w.m.refuse(r, err)
	return err
}
