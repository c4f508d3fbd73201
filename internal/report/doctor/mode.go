package doctor

import (
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
)

// checkMode reports what an agent with mode: observe has found.
func checkMode(c Check, agent *api.Node) Check {
	switch {
	case agent == nil:
		return c.ok("observe: the agent will change nothing; only a running agent knows how the node differs from its decisions")
	case agent.Observed == nil:
		return c.problem("restart the agent", "mode: observe is configured, but the running agent still enforces its decisions: the mode changes at the next start of the agent")
	case agent.Observed.Differ > 0:
		return c.ok("observe: nothing is changed; %s compared, %d differ from the node: trimtab observe lists them",
			term.Count(agent.Observed.Compared, "value"), agent.Observed.Differ)
	}
	return c.ok("observe: nothing is changed; %s compared, and the node has all of them", term.Count(agent.Observed.Compared, "value"))
}
