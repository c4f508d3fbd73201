package agent

import (
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/extend/hookserver"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// disabledStages returns the calls of the runtime or kubelet in which the agent must change nothing, by their names in
// the configuration. With attach: hooks, the configuration key is hookServers.disabledStages. Otherwise it is
// cri.disabledStages.
func disabledStages(c config.Config) []string {
	if c.Attach == "hooks" {
		return c.HookServers.DisabledStages
	}
	return c.CRI.DisabledStages
}

// callsOf converts the names of hook server stages, such as PreCreateContainer, to the calls of the runtime in which
// these stages happen.
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
