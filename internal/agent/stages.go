package agent

import (
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/extend/hookserver"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// disabledStages returns the disabled stages of the hook server if the agent is one, and of the CRI proxy otherwise.
func disabledStages(c config.Config) []string {
	if c.Attach == "hooks" {
		return c.HookServers.DisabledStages
	}
	return c.CRI.DisabledStages
}

// callsOf returns the calls of the runtime that correspond to stages of hook servers.
func callsOf(stages []string) []runtimes.Call {
	var calls []runtimes.Call
	for _, s := range stages {
		switch hookserver.Stage(s) {
		case hookserver.PreCreateContainer:
			calls = append(calls, runtimes.CreateCall)
		case hookserver.PreUpdateContainerResources:
			calls = append(calls, runtimes.KubeletUpdate)
		}
	}
	return calls
}
