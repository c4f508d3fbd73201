package nri

import (
	"fmt"
	"os"
	"time"

	"github.com/trimtab/trimtab/internal/report/logkey"
)

// warnAgain is the pause between two warnings about a missing socket.
const warnAgain = 5 * time.Minute

// switchOn is what to do about a missing socket. TOML also reads the single quotes, which the log prints as they are.
const switchOn = "start the runtime, or switch NRI on in its configuration and restart it (running containers stay). " +
	"containerd 1.7 needs three lines in /etc/containerd/config.toml: " +
	"version = 2 | [plugins.'io.containerd.nri.v1.nri'] | disable = false. " +
	"CRI-O before 1.30 needs enable_nri = true in [crio.nri]. " +
	"If the runtime's socket is elsewhere, set nri.socket. A node without NRI needs attach: bypass, cri or auto. " +
	"trimtab doctor checks this node"

// missing notes when the log last had a warning about the missing socket. One goroutine uses it.
type missing struct{ warned time.Time }

// due reports whether the warning is due at a time: at once, and then every warnAgain.
func (m *missing) due(now time.Time) bool {
	if !m.warned.IsZero() && now.Sub(m.warned) < warnAgain {
		return false
	}
	m.warned = now
	return true
}

// absent returns why the runtime's socket does not exist, or nil if it does. The log gets a warning that says what to
// do.
func (a *Attachment) absent(m *missing) error {
	_, err := os.Stat(a.o.Socket)
	if err == nil {
		m.warned = time.Time{}
		return nil
	}
	a.enter(StateWaiting, fmt.Errorf("wait for the runtime: %w", err))
	if m.due(time.Now()) {
		a.o.Log.Warn("no nri socket: pods start without what was decided for them", logkey.Socket, a.o.Socket, logkey.Hint, switchOn, logkey.Err, err)
	}
	return err
}
