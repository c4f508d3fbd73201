package doctor

import (
	"slices"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/api"
)

// checkResourcePlugins reports the state of the resource plugins. found is the agent's report; nil if no agent runs.
func checkResourcePlugins(c Check, configured config.ResourcePlugins, found *api.ResourcePlugins) Check {
	switch {
	case configured.Directory == "" && len(configured.Watch) == 0:
		return c.ok("no resource plugin is configured (resourcePlugins.directory and resourcePlugins.watch are empty)")
	case found == nil:
		return c.ok("no agent runs at which plugins could register")
	case found.Error != "":
		return c.problem("find the process that has the socket, and check the permissions of its directory", "plugins cannot register: %s", found.Error)
	}
	states := joinTexts(found.Plugins, func(p api.ResourcePlugin) string { return p.Resource + ": " + p.State() })
	switch n := len(found.Refused); {
	case slices.ContainsFunc(found.Plugins, func(p api.ResourcePlugin) bool { return p.Calls > 0 && !p.Answering }):
		return c.problem("see the plugin's own log; it registers again when it starts", "%s", states)
	case states == "" && n > 0:
		return c.problem("see the plugin's settings", "the agent refused a plugin for %s: %s", found.Refused[n-1].Resource, found.Refused[n-1].Reason)
	case states == "":
		return c.ok("no plugin has registered")
	}
	return c.ok("%s", states)
}
