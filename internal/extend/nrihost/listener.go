package nrihost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/sleep"
	"github.com/trimtab/trimtab/internal/socket"
)

const (
	// maxConnections limits the open connections of the listener. A connected plugin has two of them: its own, and the
	// connection to the NRI library's socket.
	maxConnections = 64
	// maxFirstMessage limits the size of a plugin's first message, in bytes.
	maxFirstMessage = 64 << 10
	// firstMessageTimeout is the time that a client may take for its first message.
	firstMessageTimeout = 5 * time.Second
	// innerSocketName is the file name of the NRI library's own socket, which is in a directory that only root can
	// enter.
	innerSocketName = "s"
)

// pluginListener is the listener to which plugins connect. It connects a client to the NRI library's own socket only
// after the client's first message, which names the plugin. The reason is that a client that sends nothing blocks all
// other clients of the library's socket. The library's socket is in a private directory. The reasons are that the
// library deletes any file at the path of the socket, and that the umask determines the mode of the socket.
type pluginListener struct {
	opts       Options
	plugins    *plugins
	lockFile   *os.File
	listener   net.Listener
	goroutines sync.WaitGroup

	mu       sync.Mutex            // guards all below
	conns    map[net.Conn]struct{} // the connections of clients, and the connections to the library's socket
	shutDown bool                  // the method stop was called
}

// newPluginListener makes a listener, and takes the lock of the socket Options.Socket. It does not listen yet.
func newPluginListener(o Options, p *plugins) (*pluginListener, error) {
	d := &pluginListener{opts: o, plugins: p, conns: map[net.Conn]struct{}{}}
	if err := os.MkdirAll(filepath.Dir(o.Socket), 0o755); err != nil { //nolint:gosec // only root can connect to the socket in it
		return nil, fmt.Errorf("create the directory of nriHost.socket %s: %w", o.Socket, err)
	}
	var err error
	if d.lockFile, err = os.OpenFile(o.Socket+".lock", os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600); err != nil {
		return nil, fmt.Errorf("open the lock file of nriHost.socket %s: %w", o.Socket, err)
	}
	if err := unix.Flock(int(d.lockFile.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil { //nolint:gosec // a file descriptor fits into an int
		_ = d.lockFile.Close()
		return nil, fmt.Errorf("another process has locked the file %s.lock, so the agent cannot use nriHost.socket: %w", o.Socket, err)
	}
	if err := d.removeLeftovers(); err != nil {
		_ = d.lockFile.Close()
		return nil, err
	}
	return d, nil
}

// removeLeftovers removes the socket and the private directory of an earlier host, and makes a new private directory.
// If another process serves the socket, removeLeftovers returns an error.
func (d *pluginListener) removeLeftovers() error {
	if d.opts.DisableConnections {
		return nil
	}
	if fi, err := os.Lstat(d.opts.Socket); err == nil {
		if fi.Mode().Type() != os.ModeSocket {
			return fmt.Errorf("nriHost.socket %s exists and is not a socket; remove it or set another path", d.opts.Socket)
		}
		to := net.Dialer{Timeout: time.Second}
		if c, err := to.DialContext(context.Background(), "unix", d.opts.Socket); err == nil {
			_ = c.Close()
			return fmt.Errorf("nriHost.socket %s is served by another process, such as a runtime with NRI; set another socket or disable NRI in that process", d.opts.Socket)
		}
		if err := os.Remove(d.opts.Socket); err != nil {
			return fmt.Errorf("remove the NRI socket of an earlier agent: %w", err)
		}
	}
	if err := os.RemoveAll(privateDirectory(d.opts.Socket)); err != nil {
		return fmt.Errorf("remove the private directory of an earlier agent's NRI socket: %w", err)
	}
	if err := os.Mkdir(privateDirectory(d.opts.Socket), 0o700); err != nil {
		return fmt.Errorf("create the private directory of the NRI socket: %w", err)
	}
	return nil
}

// innerPath returns the path of the NRI library's own socket.
func (d *pluginListener) innerPath() string {
	return filepath.Join(privateDirectory(d.opts.Socket), innerSocketName)
}

// open starts to accept connections of plugins. It does nothing if Options.DisableConnections is set.
func (d *pluginListener) open() error {
	if d.opts.DisableConnections {
		return nil
	}
	var err error
	if d.listener, err = socket.Listen(context.Background(), d.opts.Socket, 0o600); err != nil {
		return fmt.Errorf("listen on nriHost.socket: %w", err)
	}
	d.goroutines.Go(d.accept)
	return nil
}

// accept accepts clients until the listener is closed, and connects each client to the NRI library on its own
// goroutine.
func (d *pluginListener) accept() {
	for {
		c, err := d.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // too many open files, for example
			d.opts.Log.Error("the agent cannot accept an NRI plugin's connection", logkey.Err, err)
			sleep.For(context.Background(), acceptPause)
			continue
		}
		if !d.addConn(c) {
			_ = c.Close()
			continue
		}
		d.goroutines.Go(func() {
			defer d.removeConn(c)
			d.connectPlugin(c)
		})
	}
}

// acceptPause is the pause after an error of Accept.
const acceptPause = 50 * time.Millisecond

// addConn stores an open connection. It returns false if the listener has stopped or has too many connections.
func (d *pluginListener) addConn(c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shutDown || len(d.conns) >= maxConnections {
		return false
	}
	d.conns[c] = struct{}{}
	return true
}

// isEmpty reports whether the listener has no connections, not even of a client that has not registered yet.
func (d *pluginListener) isEmpty() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.conns) == 0
}

// removeConn closes a connection and forgets it.
func (d *pluginListener) removeConn(c net.Conn) {
	_ = c.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.conns, c)
}

// connectPlugin connects the client c to the NRI library's socket until the client or the library disconnects. It
// rejects a plugin if another plugin with the same name and index is connected. The reason is that the library would
// report a conflict if both plugins set the same field.
func (d *pluginListener) connectPlugin(c net.Conn) {
	_ = c.SetReadDeadline(time.Now().Add(firstMessageTimeout))
	first, name, err := readRegistration(c)
	if err != nil {
		d.plugins.countNonPlugin()
		d.opts.Log.Warn("the agent disconnects a client of the NRI socket that did not register as a plugin", logkey.Err, err)
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	disconnect, ok := d.plugins.connect(name)
	if !ok {
		d.opts.Log.Warn("the agent rejects an NRI plugin because another plugin with the same name and index is connected", logkey.Hook, name)
		return
	}
	defer disconnect()
	to := net.Dialer{Timeout: firstMessageTimeout}
	in, err := to.DialContext(context.Background(), "unix", d.innerPath())
	if err != nil {
		d.opts.Log.Error("the agent cannot connect an NRI plugin to the NRI library", logkey.Hook, name, logkey.Err, err)
		return
	}
	if !d.addConn(in) {
		_ = in.Close()
		return
	}
	defer d.removeConn(in)
	if _, err := in.Write(first); err != nil {
		return
	}
	d.opts.Log.Info("an NRI plugin connected", logkey.Hook, name)
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(c, in)
		_ = c.Close()
	})
	_, _ = io.Copy(in, c)
	_ = in.Close()
	back.Wait()
	d.opts.Log.Info("an NRI plugin disconnected", logkey.Hook, name)
}

// stop stops accepting clients, closes the open connections, and waits for the goroutines.
func (d *pluginListener) stop() {
	if d.listener != nil {
		_ = d.listener.Close()
	}
	d.mu.Lock()
	d.shutDown = true
	for c := range d.conns {
		_ = c.Close()
	}
	d.mu.Unlock()
	d.goroutines.Wait()
}

// close stops the listener, removes the private directory, and releases the lock of the socket.
func (d *pluginListener) close() {
	d.stop()
	if !d.opts.DisableConnections {
		_ = os.RemoveAll(privateDirectory(d.opts.Socket))
	}
	_ = d.lockFile.Close()
}
