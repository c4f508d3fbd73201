package nri

import (
	"fmt"
	"os"
	"time"

	"github.com/trimtab/trimtab/internal/report/logkey"
)

// warnInterval is the pause between two warnings about a missing socket.
const warnInterval = 5 * time.Minute

// enableNRIAdvice is what to do about a missing socket. It uses single quotes, because TOML accepts them too and the
// log does not escape them.
const enableNRIAdvice = "start the runtime, or switch NRI on in its configuration and restart it (running containers stay). " +
	"containerd 1.7 needs three lines in /etc/containerd/config.toml: " +
	"version = 2 | [plugins.'io.containerd.nri.v1.nri'] | disable = false. " +
	"CRI-O before 1.30 needs enable_nri = true in [crio.nri]. " +
	"If the runtime's socket is elsewhere, set nri.socket. A node without NRI needs attach: bypass, cri or auto. " +
	"trimtab doctor checks this node"

// missingSocketWarning stores when the attachment last warned of the missing socket. Only one goroutine uses it.
type missingSocketWarning struct{ lastWarning time.Time }

// due reports whether the warning is due: at once, and then after each warnInterval.
func (m *missingSocketWarning) due(now time.Time) bool {
	if !m.lastWarning.IsZero() && now.Sub(m.lastWarning) < warnInterval {
		return false
	}
	m.lastWarning = now
	return true
}

// whyAbsent returns why the runtime's socket does not exist, or nil if it exists. If the socket does not exist, it logs
// at once, and then once in each warnInterval, a warning that says what to do.
func (a *Attachment) whyAbsent(m *missingSocketWarning) error {
	_, err := os.Stat(a.o.Socket)
	if err == nil {
		m.lastWarning = time.Time{}
		return nil
	}
	a.enter(StateWaiting, fmt.Errorf("wait for the runtime: %w", err))
	if m.due(time.Now()) {
		a.o.Log.Warn("no NRI socket: pods start without the values that the agent would set", logkey.Socket, a.o.Socket, logkey.Hint, enableNRIAdvice, logkey.Err, err)
	}
	return err
}
