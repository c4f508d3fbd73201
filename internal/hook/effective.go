package hook

import (
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Effective reports whether the hook can take effect on a node, by the features that the node
// has. Of alternatives, "a|b", one is enough. If the hook cannot, the reason also says what the
// administrator can set.
func (i Info) Effective(probe func(feature string) lifecycle.Finding) lifecycle.Finding {
	all := lifecycle.Finding{Support: lifecycle.Supported}
	for _, need := range i.Kernel {
		f := firstNonEmpty(strings.Split(need, "|"), probe)
		if f.Support == lifecycle.NotSupported {
			if i.Instead != "" {
				f.Why += "; " + i.Instead
			}
			return f
		}
		if f.Support == lifecycle.Unknown {
			all = f
		}
	}
	return all
}

// Undecided reports whether the effect of the hook is not known yet. The hook uses the first of
// several alternative features that the node has, and an earlier one is not probed yet.
func (i Info) Undecided(probe func(feature string) lifecycle.Finding) bool {
	for _, need := range i.Kernel {
		for name := range strings.SplitSeq(need, "|") {
			support := probe(name).Support
			if support == lifecycle.Unknown {
				return true
			}
			if support == lifecycle.Supported {
				break
			}
		}
	}
	return false
}

func firstNonEmpty(features []string, probe func(string) lifecycle.Finding) lifecycle.Finding {
	best := lifecycle.Finding{Support: lifecycle.NotSupported}
	var why []string
	for _, name := range features {
		f := probe(name)
		if f.Support == lifecycle.Supported {
			return f
		}
		if f.Support == lifecycle.Unknown {
			best.Support = lifecycle.Unknown
		}
		if !slices.Contains(why, f.Why) {
			why = append(why, f.Why)
		}
	}
	best.Why = strings.Join(why, "; ")
	return best
}
