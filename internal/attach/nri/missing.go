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
const enableNRIAdvice = "start the runtime, or switch NRI on in its configuration and restart it (running containers continue). " +
	"containerd 1.7 needs three lines in /etc/containerd/config.toml: " +
	"version = 2 | [plugins.'io.containerd.nri.v1.nri'] | disable = false. " +
	"CRI-O before 1.30 needs enable_nri = true in [crio.nri]. " +
	"If the runtime's NRI socket has another path, set nri.socket. A node without NRI needs attach: bypass, cri or auto. " +
	"trimtab doctor checks this node"

// missingSocketWarning stores when the attachment last warned of the missing socket. Only one goroutine uses it.
type missingSocketWarning struct{ lastWarning time.Time }

// shouldWarn reports whether the attachment should log the warning now: at the first call, and then once in each
// warnInterval. If it returns true, it stores the time now.
func (m *missingSocketWarning) shouldWarn(now time.Time) bool {
	if !m.lastWarning.IsZero() && now.Sub(m.lastWarning) < warnInterval {
		return false
	}
	m.lastWarning = now
	return true
}

// whyAbsent returns why the runtime's socket does not exist, or nil if the socket exists. While the socket does not
// exist, whyAbsent logs a warning that says what to do: at once, and then once in each warnInterval.
func (a *Attachment) whyAbsent(m *missingSocketWarning) error {
	_, err := os.Stat(a.o.Socket)
	if err == nil {
		m.lastWarning = time.Time{}
		return nil
	}
	a.enter(StateWaiting, fmt.Errorf("wait for the runtime: %w", err))
	if m.shouldWarn(time.Now()) {
		a.o.Log.Warn("no NRI socket: pods start without the values that the agent would set", logkey.Socket, a.o.Socket, logkey.Hint, enableNRIAdvice, logkey.Err, err)
	}
	return err
}
