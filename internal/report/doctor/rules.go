package doctor

import (
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
)

// checkRules reports the rules that have matched no pod or container since the agent started. configured is the number
// of rules in the configuration. checkConfig reports rules that do not compile.
func checkRules(c Check, configured int, agent *api.Node) Check {
	if agent == nil {
		return c.ok("%s compile; whether they match is only known while the agent runs", term.Count(configured, "rule"))
	}
	var never []string
	for _, r := range agent.Rules {
		if r.Matched == 0 {
			never = append(never, r.Name)
		}
	}
	if len(never) > 0 {
		return c.ok("%s compile; since the agent's start, these rules have matched no pod or container: %s", term.Count(configured, "rule"), join(never))
	}
	return c.ok("%s compile, and each rule has matched", term.Count(configured, "rule"))
}
