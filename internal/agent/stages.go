package agent

import (
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/extend/hookserver"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// disabledStages returns the stages that the configuration disables for the CRI proxy, or for the hook
// server if the agent is one.
func disabledStages(c config.Config) []string {
	if c.Attach == "hooks" {
		return c.HookServers.DisabledStages
	}
	return c.CRI.DisabledStages
}

// callsOf returns the runtime's calls for which hook servers are asked in these stages.
func callsOf(stages []string) []runtimes.Call {
	var calls []runtimes.Call
	for _, s := range stages {
		switch hookserver.Stage(s) {
		case hookserver.PreCreateContainer:
			calls = append(calls, runtimes.Create)
		case hookserver.PreUpdateContainerResources:
			calls = append(calls, runtimes.Request)
		}
	}
	return calls
}
