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
	// After a change of a directory, the manager waits until the directory has not changed for quietTime, but at most
	// for maxQuietWait. Then it reads the directory.
	quietTime    = 50 * time.Millisecond
	maxQuietWait = 400 * time.Millisecond
	// recheckInterval is the interval at which the manager reads the directories if inotify reports no event.
	recheckInterval = time.Second
	// maxSockets limits the files of one directory that the manager reads.
	maxSockets = 256
	// pluginType is the type that plugins of this protocol report.
	pluginType = "ResourcePlugin"
)

// foundSocket identifies a socket file in a watched directory. A new socket with the same path differs from the old
// one.
type foundSocket struct {
	inode     uint64
	changedAt int64 // the time of the inode's last change (ctime), in ns since 1970
}

// watcher finds plugins in the watched directories. It asks the process at each socket for its identity.
type watcher struct {
	manager *Manager

	unreadableDirs map[string]bool // the directories that the manager cannot read; only listSockets uses this field

	mu           sync.Mutex             // guards askedSockets
	askedSockets map[string]foundSocket // the sockets whose processes were asked for their identity, by path
}

// watchSockets finds the sockets of plugins until ctx ends.
func (m *Manager) watchSockets(ctx context.Context) error {
	w := &watcher{manager: m, unreadableDirs: map[string]bool{}, askedSockets: map[string]foundSocket{}}
	f := follow.DirWatcher{
		QuietTime: quietTime, MaxWait: maxQuietWait, Recheck: recheckInterval,
		Dirs: func() []string { return m.opts.WatchDirectories }, Read: func() { w.pollSockets(ctx) },
	}
	if err := f.Run(ctx); err != nil {
		m.opts.Log.Error("the agent cannot watch the directories of resource plugins", logkey.Err, err)
	}
	return nil
}

// listSockets returns the sockets of the watched directories.
func (w *watcher) listSockets() map[string]foundSocket {
	out := map[string]foundSocket{}
	for _, dir := range w.manager.opts.WatchDirectories {
		entries, err := os.ReadDir(dir)
		if err != nil && !w.unreadableDirs[dir] { // log this once: the directory may be missing until the first plugin starts
			w.manager.opts.Log.Warn("the agent cannot read a directory of resource plugins; it tries again", logkey.File, dir, logkey.Err, err)
		}
		w.unreadableDirs[dir] = err != nil
		for _, e := range entries[:min(len(entries), maxSockets)] {
			info, err := e.Info()
			if err != nil || info.Mode().Type() != os.ModeSocket || e.Name() == socketName {
				continue
			}
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				out[filepath.Join(dir, e.Name())] = foundSocket{st.Ino, st.Ctim.Nano()}
			}
		}
	}
	return out
}

// pollSockets lists the sockets, registers the plugins at new sockets, and records the plugins whose sockets were
// removed.
func (w *watcher) pollSockets(ctx context.Context) {
	present := w.listSockets()
	w.mu.Lock()
	var news []string
	for path, f := range present {
		if w.askedSockets[path] != f {
			news = append(news, path)
			w.askedSockets[path] = f
		}
	}
	for path := range w.askedSockets {
		if _, there := present[path]; !there {
			delete(w.askedSockets, path)
			w.manager.noteRemovedSocket(path)
		}
	}
	w.mu.Unlock()
	slices.Sort(news)
	var all sync.WaitGroup
	for _, path := range news { // a socket that hangs must not delay the others
		all.Go(func() {
			if !w.identifyPlugin(ctx, path) {
				w.mu.Lock()
				delete(w.askedSockets, path) // the next call of pollSockets asks this socket again
				w.mu.Unlock()
			}
		})
	}
	all.Wait()
}

// identifyPlugin asks the process at a socket for its identity. If the process is a resource plugin, identifyPlugin
// registers it. answered is false if there was no answer.
func (w *watcher) identifyPlugin(ctx context.Context, path string) (answered bool) {
	ctx, cancel := context.WithTimeout(ctx, w.manager.opts.Timeout)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(socket.DialTrusted), grpc.WithNoProxy(), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxRegistrationBytes)))
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	client := registry.NewRegistrationClient(conn)
	info, err := client.GetInfo(ctx, &registry.InfoRequest{})
	if err != nil {
		w.manager.opts.Log.Debug("a plugin at a socket did not report its identity", logkey.Socket, path, logkey.Err, err)
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
		w.manager.opts.Log.Debug("the agent could not notify a plugin of its registration", logkey.Socket, path, logkey.Err, err)
	}
	return true
}

// register checks the identity that the process at a socket has reported, and registers it as a plugin.
func (w *watcher) register(ctx context.Context, path string, info *registry.PluginInfo) error {
	r := registration{resource: info.GetName(), socket: path, foundInDirectory: true, version: version}
	if e := strings.TrimPrefix(info.GetEndpoint(), "unix://"); e != "" {
		r.socket = filepath.Clean(e)
	}
	var err error
	switch {
	case !slices.Contains(info.GetSupportedVersions(), version):
		err = fmt.Errorf("the plugin supports the protocol versions %s: the agent supports only %s", shorten(strings.Join(info.GetSupportedVersions(), ", ")), version)
	case filepath.Dir(r.socket) != filepath.Dir(path):
		err = fmt.Errorf("endpoint %s is outside of the watched directory", shorten(r.socket))
	default:
		return w.manager.register(ctx, r)
	}
	w.manager.storeRefusal(r, err)
	return err
}
