package doctor

import (
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
)

// checkDemotion reports how much cold memory the kernel has moved for the agent, or why the kernel moves none.
func checkDemotion(c Check, agent *api.Node) Check {
	switch {
	case agent == nil:
		return c.ok("no agent runs that could report how much cold memory the kernel has moved")
	case agent.Demotion == nil:
		return c.ok("the running agent moves no memory")
	case agent.Demotion.Reason != "":
		return c.problem("write 1 to /sys/kernel/mm/numa/demotion_enabled, on a kernel from 6.16 with cgroup v2 and memory tiers; or switch placement.demotion off", "%s", agent.Demotion.Reason)
	}
	return c.ok("%s moved to slow memory, from %s", term.Bytes(agent.Demotion.Moved), term.Count(agent.Demotion.Containers, "container"))
}
