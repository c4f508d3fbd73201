package hook

import (
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// FeatureSupport reports whether a node has the features that the hook needs. For an entry such as "a|b", one of the
// features is enough. If the node lacks a feature, the reason also names the FallbackOption of the hook.
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

// HasUnknownFeatures reports whether the support of a needed feature is still unknown. For an entry such as "a|b", the
// hook uses the first feature that the node has, so unknown features after it do not count.
func (i Info) HasUnknownFeatures(probe func(feature string) lifecycle.Finding) bool {
	return slices.ContainsFunc(i.KernelFeatures, func(need string) bool {
		_, unknown := firstSupported(need, probe)
		return unknown
	})
}

// firstSupported returns the finding for the first feature of an entry such as "a|b" that the node has. The result
// unknown is true if the agent does not know whether the node has one of the earlier features. If the node has none of
// the features, or the agent knows of none, the finding has the reasons for all features. The result unknown is then
// true if the agent does not know about at least one feature of the entry.
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
