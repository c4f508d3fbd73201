package intent

import (
	"strings"
)

// CoreSchedAsk says with which pods a pod shares cores.
type CoreSchedAsk struct {
	Group     string // the group; "" for that of its class
	Exclusive bool   // it shares cores with its own containers alone
	None      bool   // it shares cores with all pods
}

func readCoreSched(t *texts, out *Pod) {
	group := t.label(KoordCoreSchedGroup)
	policy := t.label(KoordCoreSchedPolicy)
	if group == "" && policy == "" {
		return
	}
	ask, key := CoreSchedAsk{}, KoordCoreSchedGroup
	switch policy {
	case "":
	case "none":
		ask.None, key = true, KoordCoreSchedPolicy
	case "exclusive":
		ask.Exclusive, key = true, KoordCoreSchedPolicy
	default:
		out.problem(KoordCoreSchedPolicy, policy, `want "none", "exclusive" or nothing`)
		return
	}
	if len(group) > 63 || strings.Trim(group, letters+"-_.") != "" { // no label either
		out.problem(KoordCoreSchedGroup, group, "not a valid label value")
		return
	}
	if ask.Group = group; ask != (CoreSchedAsk{}) {
		out.CoreSched = Sourced[CoreSchedAsk]{ask, key}
	}
}
