package hook

import (
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// FeatureSupport reports whether a node has the features that the hook needs. Of alternatives, "a|b", one
// is enough. If the node lacks a feature, the reason also names the option that avoids it, if there is one.
func (i Info) FeatureSupport(probe func(feature string) lifecycle.Finding) lifecycle.Finding {
	all := lifecycle.Finding{Support: lifecycle.Supported}
	for _, need := range i.KernelFeatures {
		f, _ := firstSupported(need, probe)
		if f.Support == lifecycle.NotSupported {
			if i.FallbackOption != "" {
				f.Why += "; " + i.FallbackOption
			}
			return f
		}
		if f.Support == lifecycle.Unknown {
			all = f
		}
	}
	return all
}

// HasUnknownFeatures reports whether the agent does not know yet if the node has a feature that the hook would
// use. Of several alternative features, the hook uses the first one that the node has, so unknown
// features after that one do not count.
func (i Info) HasUnknownFeatures(probe func(feature string) lifecycle.Finding) bool {
	return slices.ContainsFunc(i.KernelFeatures, func(need string) bool {
		_, unknown := firstSupported(need, probe)
		return unknown
	})
}

// firstSupported returns the finding for the first of alternative features that the node has. If the node has none,
// the finding has the reasons for all of them. unknown reports whether the node may have a feature before the one
// found, or any of them if none is found.
func firstSupported(need string, probe func(string) lifecycle.Finding) (best lifecycle.Finding, unknown bool) {
	best.Support = lifecycle.NotSupported
	var why []string
	for name := range strings.SplitSeq(need, "|") {
		f := probe(name)
		switch f.Support {
		case lifecycle.Supported:
			return f, unknown
		case lifecycle.Unknown:
			best.Support, unknown = lifecycle.Unknown, true
		}
		if !slices.Contains(why, f.Why) {
			why = append(why, f.Why)
		}
	}
	best.Why = strings.Join(why, "; ")
	return best, unknown
}
