package cri

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/activation"

	"github.com/trimtab/trimtab/internal/socket"
)

const (
	// grace is how long calls under way may take when the agent ends, and
	// mostGrace how long held ones and notices of pods may: the next agent finds
	// nothing half done.
	grace     = 3 * time.Second
	mostGrace = 15 * time.Second
	// dialTimeout bounds connecting to the runtime for a caller.
	dialTimeout = 5 * time.Second
	// acceptAgain is the pause after a connection that could not be accepted.
	acceptAgain = 50 * time.Millisecond
	// firstSystemdFD is where systemd hands down sockets (sd_listen_fds(3)).
	firstSystemdFD = 3
)

// ImageSocket is where an image service of its own is relayed, beside socket.
func ImageSocket(socket string) string { return strings.TrimSuffix(socket, ".sock") + "-images.sock" }

// served is a socket that is served.
type served struct {
	listener net.Listener
	to       string
}

// listen opens what is served: sockets systemd holds for us, or our own.
func (a *Attachment) listen() ([]served, error) {
	targets := []served{{to: a.o.Runtime}}
	paths := []string{a.o.Socket}
	if a.o.Images != "" && a.o.Images != a.o.Runtime {
		targets = append(targets, served{to: a.o.Images})
		paths = append(paths, ImageSocket(a.o.Socket))
	}
	var err error
	if n := len(a.o.Listeners); n > len(targets) {
		return nil, fmt.Errorf("systemd passed %d sockets and the agent serves %d: the socket unit wants one ListenStream for cri.socket, and a second where cri.imageEndpoint is set", n, len(targets))
	}
	for i := range targets {
		if i < len(a.o.Listeners) {
			targets[i].listener = a.o.Listeners[i]
			continue
		}
		if targets[i].listener, err = listenAt(paths[i]); err != nil {
			for _, t := range targets[:i] {
				_ = t.listener.Close()
			}
			return nil, err
		}
	}
	return targets, nil
}

// HandedDown are the sockets systemd listens on for this process, as the
// environment says (sd_listen_fds(3)). It clears these variables, so that child
// processes do not get them. The kubelet's connections wait in the sockets while no
// agent serves.
func HandedDown() ([]net.Listener, error) {
	all, err := activation.Listeners()
	if err != nil {
		return nil, fmt.Errorf("sockets from systemd: %w", err)
	}
	for i, l := range all {
		if l == nil {
			return nil, fmt.Errorf("descriptor %d from systemd is no stream socket; the socket unit wants ListenStream alone", firstSystemdFD+i)
		}
	}
	return all, nil
}

// listenAt opens a socket of our own. A socket file that nobody serves any more
// is removed; one that another process serves stays.
func listenAt(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // crictl's users look in; the socket itself is closed to them
		return nil, fmt.Errorf("directory of the cri socket: %w", err)
	}
	if fi, err := os.Lstat(path); err == nil {
		if fi.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("cri.socket %s exists and is no socket; name another or remove it", path)
		}
		d := net.Dialer{Timeout: time.Second}
		if c, err := d.DialContext(context.Background(), "unix", path); err == nil {
			_ = c.Close()
			return nil, fmt.Errorf("cri.socket %s is served by another process; end that or name another", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove the stale cri socket: %w", err)
		}
	}
	l, err := socket.Listen(context.Background(), path, 0o660) // as runtimes do: root and its group
	if err != nil {
		return nil, fmt.Errorf("listen on cri.socket: %w", err)
	}
	return l, nil
}
