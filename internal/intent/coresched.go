package intent

import (
	"strings"
)

// CoreSchedRequest is a pod's request for core scheduling, which limits the pods that may share a core with this pod.
type CoreSchedRequest struct {
	Group     string // the name of a group; "" for the group of the pod's class
	Exclusive bool   // the pod's containers share cores only with each other
	None      bool   // the pod shares cores with all pods
}

// readCoreSched reads the labels KoordCoreSchedGroup and KoordCoreSchedPolicy.
func readCoreSched(t *podTexts, out *Pod) {
	group := t.label(KoordCoreSchedGroup)
	policy := t.label(KoordCoreSchedPolicy)
	if group == "" && policy == "" {
		return
	}
	ask, key := CoreSchedRequest{}, KoordCoreSchedGroup
	switch policy {
	case "":
	case "none":
		ask.None, key = true, KoordCoreSchedPolicy
	case "exclusive":
		ask.Exclusive, key = true, KoordCoreSchedPolicy
	default:
		out.reportMalformed(KoordCoreSchedPolicy, policy, `want "none", "exclusive" or nothing`)
		return
	}
	if len(group) > 63 || strings.Trim(group, asciiAlphanumerics+"-_.") != "" { // the API server refuses such a label value too
		out.reportMalformed(KoordCoreSchedGroup, group, "not a valid label value")
		return
	}
	if ask.Group = group; ask != (CoreSchedRequest{}) {
		out.CoreSched = Sourced[CoreSchedRequest]{ask, key}
	}
}
