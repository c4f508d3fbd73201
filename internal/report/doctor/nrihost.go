package doctor

import (
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/internal/report/api"
)

// checkNRIHost reports the plugins of the agent's NRI host, and the fields that each plugin sets.
func checkNRIHost(c Check, agent *api.Node) Check {
	if agent == nil || agent.NRIHost == nil {
		return c.unknown("start the agent: trimtab agent", "no agent runs that could report the plugins of its NRI host")
	}
	h := agent.NRIHost
	if h.Flow == "" {
		return c.problem("see trimtab status and the agent's log", "no plugins are served: %s", h.Error)
	}
	name := func(p api.NRIPlugin) string { return fmt.Sprintf("%s (%s)", p.Name, p.State()) }
	failed := slices.DeleteFunc(slices.Clone(h.Plugins), func(p api.NRIPlugin) bool { return p.Error == "" })
	switch {
	case len(failed) > 0:
		return c.problem("see the plugin's own log; a plugin that does not answer in time is disconnected", "plugins that failed: %s", joinTexts(failed, name))
	case len(h.Plugins) == 0:
		return c.ok("no plugin has connected to %s", h.Socket)
	}
	return c.ok("%s", joinTexts(h.Plugins, name))
}
