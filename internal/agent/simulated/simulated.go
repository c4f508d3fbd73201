// Package simulated makes agents for a simulated node.
package simulated

import (
	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/sim"
)

// Options returns the options of an agent on a simulated node. The agent then uses the simulated machine and kernel
// files in o, and not the machine and the kernel files of the real host.
func Options(o sim.AgentOptions) agent.Options {
	return agent.Options{
		Config: o.Config, Log: o.Log, Version: "test",
		Machine: o.Machine, Tree: o.Tree, Host: o.Host, Resctrl: o.Resctrl, Cookies: o.Cookies, Processes: o.Processes,
		CPUFiles: o.CPUFiles, MemoryTiers: o.MemoryTiers, HasInterface: o.HasInterface, Dial: o.Dial, DialKubelet: o.Dial,
	}
}

// New makes an agent on a simulated node.
func New(o sim.AgentOptions) (sim.Agent, error) { return agent.New(Options(o)) }
