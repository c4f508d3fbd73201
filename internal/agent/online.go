package agent

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/topology"
)

// lookAtCPUs is how often the kernel is asked which CPUs are online. It tells by
// uevents too, but only those who are in the host's network namespace.
const lookAtCPUs = time.Second

// followCPUs has everything decided anew when CPUs go offline or come back,
// until ctx ends.
func (a *Agent) followCPUs(ctx context.Context) {
	file := filepath.Join(a.opt.Config.Paths.Sys, "devices/system/cpu/online")
	tick := time.NewTicker(lookAtCPUs)
	defer tick.Stop()
	last := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		text, err := os.ReadFile(file)
		list := strings.TrimSpace(string(text))
		if err != nil || list == last {
			continue
		}
		last = list
		if ids, err := topology.ParseList(list); err == nil && len(ids) > 0 {
			a.takeOnline(ids)
		}
	}
}

// takeOnline puts it in force that these CPUs are online.
func (a *Agent) takeOnline(ids []int) {
	a.applying.Lock()
	defer a.applying.Unlock()
	a.mu.Lock()
	before, c, released := a.machine, a.config, a.released
	a.mu.Unlock()
	now, unknown := before.WithOnline(ids)
	if len(unknown) > 0 {
		a.log.Warn("CPUs came online that were not when the agent was started; they are used once it is started anew",
			logkey.CPUs, topology.FormatList(unknown))
	}
	if now.Online() == before.Online() || now.Online().Empty() {
		return
	}
	if !slices.Equal(now.Offline, before.Offline) {
		a.log.Warn("other CPUs are online now", logkey.CPUs, now.Format(now.Online()))
	}
	policy, err := policyOf(c, now, a.node)
	if err != nil {
		a.log.Error("the configuration cannot hold on these CPUs; what was decided stays", logkey.Err, err)
		return
	}
	if released {
		policy = nothing(policy)
	}
	a.mu.Lock()
	a.machine = now
	a.mu.Unlock()
	a.conductor.Rehost(now, policy, tuning(c))
}

// hardware is the machine as it is now.
func (a *Agent) hardware() *topology.Machine {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.machine
}
