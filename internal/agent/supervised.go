package agent

import (
	"context"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/sleep"
)

// statusInterval is how often the agent sends systemd the line that `systemctl status` shows, and the
// watchdog's keep-alive. If a quarter of the watchdog's limit is shorter, that is used.
const statusInterval = 10 * time.Second

// supervised reports the agent's state to systemd until ctx ends, if the unit has Type=notify
// (sd_notify(3)). Because other units wait for this unit, it counts as started at once, also in standby and
// while the runtime does not run. The watchdog gets a keep-alive only while the agent handles events, as
// /healthz judges.
func (a *Agent) supervised(ctx context.Context) {
	if sent, err := daemon.SdNotify(false, daemon.SdNotifyReady); !sent {
		if err != nil {
			a.log.Warn("the agent cannot notify systemd of its start", logkey.Err, err)
		}
		return
	}
	defer a.notify(daemon.SdNotifyStopping)
	pause := statusInterval
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		a.log.Warn("the agent cannot notify systemd's watchdog", logkey.Err, err)
	}
	if watchdog > 0 {
		pause = min(pause, watchdog/4)
	}
	for {
		a.notify("STATUS=" + a.statusLine())
		if watchdog > 0 && a.alive(ctx, pause) {
			a.notify(daemon.SdNotifyWatchdog)
		}
		if !sleep.For(ctx, pause) {
			return
		}
	}
}

// alive reports whether the conductor handles events within a time limit.
func (a *Agent) alive(ctx context.Context, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := a.conductor.Alive(ctx)
	if err != nil {
		a.log.Error("the agent cannot notify systemd's watchdog", logkey.Err, err)
	}
	return err == nil
}

func (a *Agent) statusLine() string {
	if err := a.Ready(); err != nil {
		return "not ready: " + err.Error()
	}
	return "ready"
}

// notify sends a message to systemd. Without systemd it does nothing.
func (a *Agent) notify(message string) {
	if _, err := daemon.SdNotify(false, message); err != nil {
		a.log.Warn("the agent cannot notify systemd", logkey.Err, err)
	}
}

// reloading tells systemd that a change of the configuration is being applied.
func (a *Agent) reloading(apply func(config.Config) error) func(config.Config) error {
	return func(c config.Config) error {
		a.notify(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
		defer a.notify(daemon.SdNotifyReady)
		return apply(c)
	}
}
