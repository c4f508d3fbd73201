package choose

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/topology"
)

// Step is what a reason is about.
type Step uint8

// The steps.
const (
	// Narrowed: a preference was kept, or dropped because too little was left.
	Narrowed Step = iota
	// Entered: one of several groups that hold everything was chosen.
	Entered
	// Filled: no group holds everything, so several were filled.
	Filled
	// Divided: the count was divided over all groups of a level.
	Divided
	// Bound: Left NUMA nodes were chosen, of Of sets of as many that hold
	// everything.
	Bound
)

// Reason is one thing that decided. It is kept as numbers and put into words
// only for reports.
type Reason struct {
	Step Step
	// Rule names the preference, or the criterion of the ranking that told the
	// chosen group from the next best.
	Rule  string
	Level topology.Level
	Kinds bool // of kinds of cores, not of groups of a level
	// Of is how many groups, or CPUs, there were to choose from; Left how many
	// of them the preference left.
	Of, Left    int
	Avoid, Kept bool
	// Against says what decided against the others that hold everything, the criterion
	// that is looked at last first.
	LostTo []Against
	// Partly: as many CPUs as possible were preferred where not all could be had.
	Partly bool
}

// Against is a criterion that decided against N others.
type Against struct {
	Rule string
	N    int
	// IDs are those of packages or NUMA nodes, or the first CPUs of what else it is; none of
	// sets of several NUMA nodes.
	IDs []int
	by  int
}

// against notes that a criterion, a number that is higher for those looked at later, decided
// against n more. id is that of one, or -1.
func (r *Reason) against(by int, rule string, n, id int) {
	i, known := slices.BinarySearchFunc(r.LostTo, by, func(a Against, by int) int { return by - a.by })
	if !known {
		r.LostTo = slices.Insert(r.LostTo, i, Against{Rule: rule, by: by})
	}
	a := &r.LostTo[i]
	if a.N += n; id >= 0 {
		a.IDs = append(a.IDs, id)
	}
	r.Rule = r.LostTo[0].Rule
}

// String puts a reason into words.
func (r Reason) String() string {
	switch r.Step {
	case Narrowed:
		verb := "near "
		if r.Avoid {
			verb = "away from "
		}
		if r.Kept {
			return fmt.Sprintf("%s%s: %d of %d CPUs are left", verb, r.Rule, r.Left, r.Of)
		}
		if r.Partly {
			return fmt.Sprintf("%s%s: as many as possible of %d CPUs, of %d in all", verb, r.Rule, r.Left, r.Of)
		}
		return fmt.Sprintf("%s%s: not possible, it would leave %d of %d CPUs", verb, r.Rule, r.Left, r.Of)
	case Entered:
		if r.Of == 1 {
			return fmt.Sprintf("%s: the only one that holds all", r.what())
		}
		return fmt.Sprintf("%s: of %d that hold all, the one with %s", r.what(), r.Of, r.rules())
	case Bound:
		if r.Of == 1 {
			return fmt.Sprintf("%s: the only choice that holds all", count(r.Left, "NUMA node"))
		}
		return fmt.Sprintf("%s: of %d choices that hold all, the one with %s", count(r.Left, "NUMA node"), r.Of, r.rules())
	case Filled:
		if r.Rule != "" {
			return fmt.Sprintf("%s: several of %d, with %s", r.what(), r.Of, r.Rule)
		}
		return "no one " + r.what() + " holds all: as few as possible of " + count(r.Of, r.what())
	default:
		return "divided over " + count(r.Of, r.what())
	}
}

// rules names what decided; where that was not the same for all others, against whom each
// did.
func (r Reason) rules() string {
	if len(r.LostTo) < 2 {
		return r.Rule
	}
	parts := make([]string, len(r.LostTo))
	for i, a := range r.LostTo {
		whom := count(a.N, "other")
		switch ids := topology.FormatList(slices.Sorted(slices.Values(a.IDs))); {
		case len(a.IDs) == 0:
		case r.Step == Bound || r.Level == topology.NodeLevel && !r.Kinds:
			whom = "node " + ids
		case r.Level == topology.PackageLevel:
			whom = "package " + ids
		default:
			whom = "that of CPU " + ids
		}
		parts[i] = a.Rule + " (before " + whom + ")"
	}
	return strings.Join(parts, ", ")
}

// what names the groups a reason is about.
func (r Reason) what() string {
	if r.Kinds {
		return "core kind"
	}
	return r.Level.String()
}

// count writes a number of things.
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}
