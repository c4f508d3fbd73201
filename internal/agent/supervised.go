package agent

import (
	"context"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/sleep"
)

// statusInterval is how often the agent sends two messages to systemd: the line that `systemctl status` shows, and the
// keep-alive of the watchdog. If a quarter of the watchdog's timeout is shorter, the agent uses this quarter instead.
const statusInterval = 10 * time.Second

// reportToSystemd reports the agent's state to systemd until ctx ends, if the unit has Type=notify (sd_notify(3)). It
// reports READY at once, also in standby or without a runtime, because other units may wait for this unit. It sends the
// watchdog a keep-alive only while the agent handles events, which is also the condition of /healthz.
func (a *Agent) reportToSystemd(ctx context.Context) {
	if sent, err := daemon.SdNotify(false, daemon.SdNotifyReady); !sent {
		if err != nil {
			a.log.Warn("the agent cannot report its start to systemd", logkey.Err, err)
		}
		return
	}
	defer a.notifySystemd(daemon.SdNotifyStopping)
	pause := statusInterval
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		a.log.Warn("the agent cannot read the timeout of systemd's watchdog, so it sends no keep-alive messages", logkey.Err, err)
	}
	if watchdog > 0 {
		pause = min(pause, watchdog/4)
	}
	for {
		a.notifySystemd("STATUS=" + a.statusLine())
		if watchdog > 0 && a.isAlive(ctx, pause) {
			a.notifySystemd(daemon.SdNotifyWatchdog)
		}
		if !sleep.For(ctx, pause) {
			return
		}
	}
}

// isAlive reports whether the conductor handles events within a time limit.
func (a *Agent) isAlive(ctx context.Context, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := a.conductor.Alive(ctx)
	if err != nil {
		a.log.Error("the agent does not handle events, so it sends no keep-alive message to systemd's watchdog", logkey.Err, err)
	}
	return err == nil
}

// statusLine returns the line that `systemctl status` shows.
func (a *Agent) statusLine() string {
	if err := a.Ready(); err != nil {
		return "not ready: " + err.Error()
	}
	return "ready"
}

// notifySystemd sends a message to systemd. Without systemd it does nothing.
func (a *Agent) notifySystemd(message string) {
	if _, err := daemon.SdNotify(false, message); err != nil {
		a.log.Warn("the agent cannot send its state to systemd", logkey.Err, err)
	}
}

// notifyReload wraps apply: it reports to systemd that the agent reloads while apply runs.
func (a *Agent) notifyReload(apply func(config.Config) error) func(config.Config) error {
	return func(c config.Config) error {
		a.notifySystemd(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
		defer a.notifySystemd(daemon.SdNotifyReady)
		return apply(c)
	}
}
