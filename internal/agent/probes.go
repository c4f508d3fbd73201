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
	active, _ := c.Hooks.Hooks(s.node) // no error, because the configuration is in force
	return active
}

// hooks reports for each hook whether it is enabled and can take effect.
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
		out = append(out, api.Hook{Name: h.Name, Enabled: enabled, Finding: info.FeatureSupport(s.node.Probe)})
	}
	return out
}

// probeInterval is how often the agent repeats its probes while one of them has no result.
const probeInterval = 10 * time.Second

// repeatProbes repeats probes that had no result at the start, because the node had no cgroups of pods yet. When all
// probes have a result, it applies the configuration again and returns.
func (s *settings) repeatProbes(ctx context.Context) {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for s.waitsForProbe() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if s.waitsForProbe() {
			continue
		}
		if err := s.apply(s.current()); err != nil {
			s.log.Error("the agent now knows which features the kernel has, but cannot apply the hooks again; the old hooks stay in force", logkey.Err, err)
		}
	}
}

// waitsForProbe reports whether a probe for an enabled hook has no result yet.
func (s *settings) waitsForProbe() bool {
	return slices.ContainsFunc(s.activeHooks(), func(h hook.Hook) bool { return h.Info().HasUnknownFeatures(s.node.Probe) })
}
