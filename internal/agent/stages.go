package agent

import (
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// disabledStages are those of the proxy or of the hook server the agent is.
func disabledStages(c config.Config) []string {
	if c.Attach == "hooks" {
		return c.HookServers.DisabledStages
	}
	return c.CRI.DisabledStages
}

// callsOf are the runtime's calls at the stages of the configuration, which have the
// names that hook servers know them by.
func callsOf(stages []string) []runtimes.Call {
	var calls []runtimes.Call
	for _, s := range stages {
		calls = append(calls, map[string]runtimes.Call{
			"PreCreateContainer": runtimes.Create, "PreUpdateContainerResources": runtimes.Request,
		}[s])
	}
	return calls
}
