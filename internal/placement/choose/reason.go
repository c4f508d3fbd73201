package choose

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/topology"
)

// Step is the step of a decision that a reason explains.
type Step uint8

// The steps.
const (
	// PreferenceApplied means that a preference was applied, or skipped because it left too few CPUs.
	PreferenceApplied Step = iota
	// GroupChosen means that one of several groups with enough CPUs was chosen.
	GroupChosen
	// GroupsFilled means that CPUs of several groups were chosen. Either no single group has enough CPUs, or several
	// groups are better than one by the criterion that Reason.Rule names.
	GroupsFilled
	// CountDivided means that the count was divided over all groups of a level.
	CountDivided
	// NodesChosen means that a set of NUMA nodes was chosen. Reason.Remaining is the number of nodes in this set.
	// Reason.Candidates is the number of sets with so many nodes that have enough CPUs.
	NodesChosen
)

// Reason is one reason for a choice. It is stored as numbers, and String formats it for reports.
type Reason struct {
	Step Step
	// Rule is the name of the preference, or of the criterion by which the chosen group beat the next best
	// group.
	Rule  string
	Level topology.Level
	Kinds bool // the groups are the kinds of cores of a NUMA node, and not the groups of Level
	// Candidates is the number of groups to choose from, and Remaining is the number of groups from which CPUs were
	// chosen. For a preference (PreferenceApplied), Candidates is the number of CPUs before the preference, and
	// Remaining the number of CPUs that it leaves.
	Candidates, Remaining int
	Avoid                 bool // the preference avoids CPUs
	Kept                  bool // the preference was applied, not skipped
	// Eliminations has the criteria by which the other groups with enough CPUs lost, the least important criterion
	// first.
	Eliminations []Elimination
	// Partly means that too few preferred CPUs were free, so as many of them as possible were taken, and others
	// added.
	Partly bool
}

// Elimination is a criterion by which N groups or sets of nodes lost.
type Elimination struct {
	Rule string // the name of the criterion
	N    int
	// IDs identify the groups that lost: ids of packages or NUMA nodes, or the first CPUs of other groups. IDs is
	// empty for sets of several NUMA nodes.
	IDs       []int
	criterion int // the position of the criterion: less important criteria have higher positions
}

// addElimination counts n more groups that lost by a criterion. The parameter position is that of the criterion: less
// important criteria have higher positions. The parameter id identifies one of the groups; -1 for none.
func (r *Reason) addElimination(position int, rule string, n, id int) {
	i, known := slices.BinarySearchFunc(r.Eliminations, position, func(a Elimination, position int) int { return position - a.criterion })
	if !known {
		r.Eliminations = slices.Insert(r.Eliminations, i, Elimination{Rule: rule, criterion: position})
	}
	a := &r.Eliminations[i]
	if a.N += n; id >= 0 {
		a.IDs = append(a.IDs, id)
	}
	r.Rule = r.Eliminations[0].Rule
}

// String formats a reason.
func (r Reason) String() string {
	switch r.Step {
	case PreferenceApplied:
		verb := "near "
		if r.Avoid {
			verb = "away from "
		}
		if r.Kept {
			return fmt.Sprintf("%s%s: %d of %d CPUs are left", verb, r.Rule, r.Remaining, r.Candidates)
		}
		if r.Partly {
			return fmt.Sprintf("%s%s: as many as possible of %d preferred CPUs, and the rest from %d other CPUs", verb, r.Rule, r.Remaining, r.Candidates-r.Remaining)
		}
		return fmt.Sprintf("%s%s: not possible, because it would leave only %d of %d CPUs", verb, r.Rule, r.Remaining, r.Candidates)
	case GroupChosen:
		if r.Candidates == 1 {
			return fmt.Sprintf("%s: the only one that has enough CPUs", r.groupKind())
		}
		return fmt.Sprintf("%s: of %d with enough CPUs, the one with %s", r.groupKind(), r.Candidates, r.rules())
	case NodesChosen:
		if r.Candidates == 1 {
			return fmt.Sprintf("%s: the only choice with enough CPUs", formatCount(r.Remaining, "NUMA node"))
		}
		return fmt.Sprintf("%s: of %d choices with enough CPUs, the one with %s", formatCount(r.Remaining, "NUMA node"), r.Candidates, r.rules())
	case GroupsFilled:
		if r.Rule != "" {
			return fmt.Sprintf("several of %s, with %s", formatCount(r.Candidates, r.groupKind()), r.Rule)
		}
		return "no single " + r.groupKind() + " has enough CPUs: as few as possible of " + formatCount(r.Candidates, r.groupKind())
	default:
		return "the CPUs are divided over " + formatCount(r.Candidates, r.groupKind())
	}
}

// rules returns the names of the criteria that decided. If there are several, it also says which groups lost
// by each criterion.
func (r Reason) rules() string {
	if len(r.Eliminations) < 2 {
		return r.Rule
	}
	parts := make([]string, len(r.Eliminations))
	for i, a := range r.Eliminations {
		losers := formatCount(a.N, "other")
		switch ids := topology.FormatList(slices.Sorted(slices.Values(a.IDs))); {
		case len(a.IDs) == 0:
		case r.Step == NodesChosen || r.Level == topology.NodeLevel && !r.Kinds:
			losers = "node " + ids
		case r.Level == topology.PackageLevel:
			losers = "socket " + ids
		default:
			losers = "the " + r.groupKind() + " of CPU " + ids
		}
		parts[i] = a.Rule + " (before " + losers + ")"
	}
	return strings.Join(parts, ", ")
}

// groupKind returns what the groups of a reason are, for users, such as "NUMA node".
func (r Reason) groupKind() string {
	if r.Kinds {
		return "core kind"
	}
	return r.Level.String()
}

// formatCount formats a number of things, such as "2 NUMA nodes".
func formatCount(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}
