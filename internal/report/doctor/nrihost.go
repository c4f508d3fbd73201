package doctor

import (
	"fmt"

	"github.com/trimtab/trimtab/internal/report/api"
)

// checkHosted names the plugins of the agent's NRI host and the fields that each sets.
func checkHosted(c Check, agent *api.Node) Check {
	if agent == nil || agent.NRIHost == nil {
		return c.unknown("start the agent: trimtab agent", "only a running agent knows its plugins")
	}
	h := agent.NRIHost
	if h.Flow == "" {
		return c.problem("see trimtab status and the agent's log", "no plugins are served: %s", h.Error)
	}
	var found, failed []string
	for _, p := range h.Plugins {
		text := fmt.Sprintf("%s (%s)", p.Name, p.State())
		if p.Error != "" {
			failed = append(failed, text)
		}
		found = append(found, text)
	}
	switch {
	case len(failed) > 0:
		return c.problem("see the plugin's own log; a plugin that does not answer in time is disconnected", "plugins that failed: %s", join(failed))
	case len(found) == 0:
		return c.ok("no plugin has connected to %s", h.Socket)
	}
	return c.ok("%s", join(found))
}
