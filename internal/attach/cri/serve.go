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
	// grace is how long running calls may take when the agent ends. maxGrace is how long held calls and queued
	// events may take, so that the next agent finds no half-finished work.
	grace    = 3 * time.Second
	maxGrace = 15 * time.Second
	// dialTimeout bounds connecting to the runtime for a caller.
	dialTimeout = 5 * time.Second
	// acceptRetry is the pause after an error of Accept.
	acceptRetry = 50 * time.Millisecond
	// firstSystemdFD is the first descriptor of sockets from systemd (sd_listen_fds(3)).
	firstSystemdFD = 3
)

// ImageSocket is the socket, beside socket, on which a separate image service is relayed.
func ImageSocket(socket string) string { return strings.TrimSuffix(socket, ".sock") + "-images.sock" }

// served is a listener, and the socket that its connections are relayed to.
type served struct {
	listener net.Listener
	to       string
}

// listen returns the sockets to serve: those that systemd holds for us, or our own.
func (a *Attachment) listen() ([]served, error) {
	targets := []served{{to: a.o.Runtime}}
	paths := []string{a.o.Socket}
	if a.o.Images != "" && a.o.Images != a.o.Runtime {
		targets = append(targets, served{to: a.o.Images})
		paths = append(paths, ImageSocket(a.o.Socket))
	}
	var err error
	if n := len(a.o.Listeners); n > len(targets) {
		return nil, fmt.Errorf("systemd passed %d sockets and the agent serves %d: the socket unit needs one ListenStream for cri.socket, and a second where cri.imageEndpoint is set", n, len(targets))
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

// HandedDown returns the sockets that systemd listens on for this process, from the
// environment (sd_listen_fds(3)). It clears these variables, so that child processes do
// not use them. The kubelet's connections wait in the sockets while no agent serves.
func HandedDown() ([]net.Listener, error) {
	all, err := activation.Listeners()
	if err != nil {
		return nil, fmt.Errorf("sockets from systemd: %w", err)
	}
	for i, l := range all {
		if l == nil {
			return nil, fmt.Errorf("descriptor %d from systemd is no stream socket; use only ListenStream= in the socket unit", firstSystemdFD+i)
		}
	}
	return all, nil
}

// listenAt opens a socket of our own. It removes a socket file that no process serves
// any more, and refuses one that another process serves.
func listenAt(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // users of crictl may list the directory; the socket has mode 0660
		return nil, fmt.Errorf("directory of the cri socket: %w", err)
	}
	if fi, err := os.Lstat(path); err == nil {
		if fi.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("cri.socket %s exists and is not a socket; remove it or set another path", path)
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
