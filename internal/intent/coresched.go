package intent

import (
	"strings"
)

// CoreSchedAsk is a pod's request for the pods with which it shares cores.
type CoreSchedAsk struct {
	Group     string // the group; "" for the group of its class
	Exclusive bool   // its containers share cores only with each other
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
	if len(group) > 63 || strings.Trim(group, asciiLetters+"-_.") != "" { // no label either
		out.problem(KoordCoreSchedGroup, group, "not a valid label value")
		return
	}
	if ask.Group = group; ask != (CoreSchedAsk{}) {
		out.CoreSched = Sourced[CoreSchedAsk]{ask, key}
	}
}
