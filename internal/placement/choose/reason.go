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
	// Narrowed: a preference was applied, or skipped because it left too few CPUs.
	Narrowed Step = iota
	// Entered: one of several groups with enough CPUs was chosen.
	Entered
	// Filled: no group has enough CPUs, so several were filled.
	Filled
	// Divided: the count was divided over all groups of a level.
	Divided
	// NodesChosen: Left NUMA nodes were chosen, out of Of sets of that size with enough CPUs.
	Bound
)

// Reason is one reason of a choice. It is stored as numbers, and formatted only for reports.
type Reason struct {
	Step Step
	// Rule names the preference, or the criterion by which the chosen group beat the next best.
	Rule  string
	Level topology.Level
	Kinds bool // groups are kinds of cores, not groups of a level
	// Of is the number of groups, or CPUs, to choose from. Left is how many of them the
	// preference left.
	Of, Left    int
	Avoid, Kept bool
	// LostTo says by which criteria the other sufficient groups lost, the last criterion first.
	LostTo []Against
	// Partly: too few preferred CPUs were free, so all of them were taken and others added.
	Partly bool
}

// Against is a criterion by which N others lost.
type Against struct {
	Rule string
	N    int
	// IDs are those of packages or NUMA nodes, or the first CPUs of other groups; none for sets
	// of several NUMA nodes.
	IDs []int
	by  int
}

// against notes that n more others lost by a criterion; later criteria have higher numbers. id
// is one of them, or -1.
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

// String formats a reason.
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
			return fmt.Sprintf("%s%s: as many as possible of %d CPUs, from %d CPUs", verb, r.Rule, r.Left, r.Of)
		}
		return fmt.Sprintf("%s%s: not possible, because it would leave only %d of %d CPUs", verb, r.Rule, r.Left, r.Of)
	case Entered:
		if r.Of == 1 {
			return fmt.Sprintf("%s: the only one that has enough CPUs", r.what())
		}
		return fmt.Sprintf("%s: of %d with enough CPUs, the one with %s", r.what(), r.Of, r.rules())
	case Bound:
		if r.Of == 1 {
			return fmt.Sprintf("%s: the only choice with enough CPUs", count(r.Left, "NUMA node"))
		}
		return fmt.Sprintf("%s: of %d choices with enough CPUs, the one with %s", count(r.Left, "NUMA node"), r.Of, r.rules())
	case Filled:
		if r.Rule != "" {
			return fmt.Sprintf("%s: several of %d, with %s", r.what(), r.Of, r.Rule)
		}
		return "no single " + r.what() + " has enough CPUs: as few as possible of " + count(r.Of, r.what())
	default:
		return "divided over " + count(r.Of, r.what())
	}
}

// rules names the criteria that decided and, if there were several, the others that lost by
// each.
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
			whom = "socket " + ids
		default:
			whom = "that of CPU " + ids
		}
		parts[i] = a.Rule + " (before " + whom + ")"
	}
	return strings.Join(parts, ", ")
}

// what names the kind of groups a reason is about.
func (r Reason) what() string {
	if r.Kinds {
		return "core kind"
	}
	return r.Level.String()
}

// count formats a number of things.
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}
