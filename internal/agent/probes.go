package agent

import (
	"context"
	"slices"
	"time"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// activeHooks returns the hooks that are enabled.
func (s *settings) activeHooks() []hook.Hook {
	c := s.current()
	active, _ := c.Hooks.Hooks(s.node) // valid, because the configuration is in force
	return active
}

// hooks returns for each hook whether it is enabled and can take effect.
func (s *settings) hooks() []api.Hook {
	on := map[string]hook.Info{}
	for _, h := range s.activeHooks() {
		on[h.Info().Name] = h.Info()
	}
	var out []api.Hook
	for _, h := range hook.Catalogue() {
		info, enabled := on[h.Name]
		if !enabled {
			info = h
		}
		out = append(out, api.Hook{Name: h.Name, Enabled: enabled, Finding: info.Effective(s.node.Probe)})
	}
	return out
}

// probeInterval is how often the agent probes a node again while it does not know whether a hook can take
// effect.
const probeInterval = 10 * time.Second

// repeatProbes makes the hooks again when a probe gives an answer that was missing at the start, because
// the node had no cgroups of pods then.
func (s *settings) repeatProbes(ctx context.Context) {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for s.undecided() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if s.undecided() {
			continue
		}
		if err := s.apply(s.current()); err != nil {
			s.log.Error("the agent cannot make the hooks again; the old hooks stay in force", logkey.Err, err)
		}
	}
}

// undecided reports whether an enabled hook waits for a probe's answer.
func (s *settings) undecided() bool {
	return slices.ContainsFunc(s.activeHooks(), func(h hook.Hook) bool { return h.Info().Undecided(s.node.Probe) })
}
