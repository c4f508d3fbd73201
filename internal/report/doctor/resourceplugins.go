package doctor

import (
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/api"
)

// checkResourcePlugins reports the resource plugins as the agent sees them.
func checkResourcePlugins(c Check, configured config.ResourcePlugins, found *api.ResourcePlugins) Check {
	switch {
	case configured.Directory == "" && len(configured.Watch) == 0:
		return c.ok("none is configured (resourcePlugins.directory and resourcePlugins.watch are empty)")
	case found == nil:
		return c.ok("no agent runs at which plugins could register")
	case found.Error != "":
		return c.problem("find the process that has the socket, and check the permissions of its directory", "plugins cannot register: %s", found.Error)
	}
	var states []string
	bad := false
	for _, p := range found.Plugins {
		states = append(states, p.Resource+": "+p.State())
		bad = bad || p.Calls > 0 && !p.Answering
	}
	switch n := len(found.Refused); {
	case bad:
		return c.problem("see the plugin's own log; it registers again when it starts", "%s", join(states))
	case len(states) == 0 && n > 0:
		return c.problem("see the plugin's settings", "%s was refused: %s", found.Refused[n-1].Resource, found.Refused[n-1].Reason)
	case len(states) == 0:
		return c.ok("none has registered")
	}
	return c.ok("%s", join(states))
}
