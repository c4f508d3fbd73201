package doctor

import (
	"github.com/trimtab/trimtab/internal/report/api"
)

// checkCPUClasses reports the CPUs that do not have their CPU class, from the report of the running agent.
func checkCPUClasses(c Check, agent *api.Node) Check {
	switch {
	case agent == nil:
		return c.ok("no agent runs that could report which CPUs have their class; 'trimtab config check --node host' names what the hardware lacks")
	case agent.CPUClasses == nil:
		return c.ok("no CPU has a class now")
	case len(agent.CPUClasses.Faults) > 0:
		return c.problem("set only what the hardware supports in placement.balloons.cpuClasses; if files cannot be written, mount paths.cpu with write access (docs/install.md)", "%s", joinTexts(agent.CPUClasses.Faults, api.CPUClassFault.Text))
	case agent.CPUClasses.Repairs > 0:
		return c.ok("all CPUs have their class; another program writes their files: %s", agent.CPUClasses.LastRepair)
	}
	return c.ok("all CPUs have their class")
}
