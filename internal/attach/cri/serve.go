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
	// When the agent ends, it waits at most gracePeriod for the end of its calls. It waits at most maxGracePeriod for
	// held calls and queued events, so that the next agent finds no half-finished work.
	gracePeriod    = 3 * time.Second
	maxGracePeriod = 15 * time.Second
	// dialTimeout is how long the agent tries to connect to the runtime for one caller.
	dialTimeout = 5 * time.Second
	// acceptRetry is the pause after Accept has returned an error.
	acceptRetry = 50 * time.Millisecond
	// firstSystemdFD is the number of the first file descriptor that systemd passes (sd_listen_fds(3)).
	firstSystemdFD = 3
)

// ImageSocket returns the path of the socket on which the attachment relays a separate image service, if the attachment
// serves the CRI on the path socket. Both sockets are in the same directory.
func ImageSocket(socket string) string { return strings.TrimSuffix(socket, ".sock") + "-images.sock" }

// relayedListener is a listener, and the socket that its connections are relayed to.
type relayedListener struct {
	listener net.Listener
	backend  string
}

// listen returns the sockets to serve. It uses the sockets that systemd passed to the agent, and opens the sockets that
// systemd did not pass.
func (a *Attachment) listen() ([]relayedListener, error) {
	targets := []relayedListener{{backend: a.o.Runtime}}
	paths := []string{a.o.Socket}
	if a.o.Images != "" && a.o.Images != a.o.Runtime {
		targets = append(targets, relayedListener{backend: a.o.Images})
		paths = append(paths, ImageSocket(a.o.Socket))
	}
	var err error
	if n := len(a.o.Listeners); n > len(targets) {
		return nil, fmt.Errorf("systemd passed %d sockets and the agent serves %d: the socket unit needs one ListenStream= for cri.socket, and a second one only if cri.imageEndpoint is set", n, len(targets))
	}
	for i := range targets {
		if i < len(a.o.Listeners) {
			targets[i].listener = a.o.Listeners[i]
			continue
		}
		if targets[i].listener, err = listenAt("cri.socket", paths[i]); err != nil {
			for _, t := range targets[:i] {
				_ = t.listener.Close()
			}
			return nil, err
		}
	}
	return targets, nil
}

// SystemdListeners returns the sockets that systemd has passed to this process by environment variables
// (sd_listen_fds(3)). It clears these variables, so that child processes do not use the sockets. While no agent runs,
// connections of the kubelet wait in these sockets.
func SystemdListeners() ([]net.Listener, error) {
	all, err := activation.Listeners()
	if err != nil {
		return nil, fmt.Errorf("sockets from systemd: %w", err)
	}
	for i, l := range all {
		if l == nil {
			return nil, fmt.Errorf("descriptor %d from systemd is not a stream socket; use only ListenStream= in the socket unit", firstSystemdFD+i)
		}
	}
	return all, nil
}

// listenAt opens a socket at a path. It removes a socket file that no process serves any more, and returns an error if
// another process serves the socket. key is the configuration key of the path, for errors.
func listenAt(key, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // users of crictl may list the directory; the socket has mode 0660
		return nil, fmt.Errorf("create the directory of %s: %w", key, err)
	}
	if err := (socket.ServerSocket{Path: path, Key: key, Program: "process"}).RemoveStale(context.Background()); err != nil {
		return nil, err
	}
	l, err := socket.Listen(context.Background(), path, 0o660) // only root and its group may connect, as to the sockets of runtimes
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", key, err)
	}
	return l, nil
}
