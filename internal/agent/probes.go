package agent

import (
	"context"
	"slices"
	"time"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// active are the hooks that are on.
func (s *settings) active() []hook.Hook {
	c := s.current()
	active, _ := c.Hooks.Hooks(s.node) // valid, or it would not be in force
	return active
}

// hooks lists for every hook whether it is on and can take effect.
func (s *settings) hooks() []api.Hook {
	on := map[string]hook.Info{}
	for _, h := range s.active() {
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

// probeInterval is how often a node is probed again while it is not known whether a
// hook can take effect.
const probeInterval = 10 * time.Second

// probeAgain makes the hooks again once a probe has an answer that it lacked at the
// start, because the node had no cgroups of pods yet.
func (s *settings) probeAgain(ctx context.Context) {
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
			s.log.Error("hooks cannot be made again; the old ones stay", logkey.Err, err)
		}
	}
}

// undecided reports whether a hook that is on waits for a probe's answer.
func (s *settings) undecided() bool {
	return slices.ContainsFunc(s.active(), func(h hook.Hook) bool { return h.Info().Undecided(s.node.Probe) })
}
