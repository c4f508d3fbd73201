package lifecycle

import (
	"fmt"
	"slices"
)

// MaxProblems limits the problems that the agent keeps and logs for one pod, so that one pod's
// annotations cannot fill the log, the journal and the status.
const MaxProblems = 20

// rank orders problems by importance: refusals, problems that strict mode refuses, unserved
// requests, warnings.
func (p Problem) rank() int {
	switch {
	case p.Refused:
		return 0
	case p.Unserved:
		return 2
	case p.Warning:
		return 3
	}
	return 1
}

// count returns the number of problems that p represents.
func (p Problem) count() int {
	if p.More > 0 {
		return p.More
	}
	return 1
}

// MoreProblems returns a problem that represents n unlisted problems.
func MoreProblems(n int) Problem {
	return Problem{Reason: fmt.Sprintf("and %d more problems", n), Warning: true, More: n}
}

// CountProblems returns the number of problems in a list, including unlisted ones.
func CountProblems(problems []Problem) int {
	n := 0
	for _, p := range problems {
		n += p.count()
	}
	return n
}

// MostSevere returns the most severe problems of a list, at most the given number, and the number of
// problems that it left out. It sorts refusals first and warnings last. A list that is short enough
// keeps its order.
func MostSevere(problems []Problem, most int) (kept []Problem, left int) {
	more := 0
	kept = slices.DeleteFunc(slices.Clone(problems), func(p Problem) bool { more += p.More; return p.More > 0 })
	if most = max(most, 0); len(kept) > most {
		slices.SortStableFunc(kept, func(a, b Problem) int { return a.rank() - b.rank() })
		more += len(kept) - most
		kept = slices.Clip(kept[:most])
	}
	return kept, more
}

// LimitProblems shortens a list of problems to at most the given number. The last problem of a shortened
// list reports how many problems were left out.
func LimitProblems(problems []Problem, most int) []Problem {
	if len(problems) <= most && !slices.ContainsFunc(problems, func(p Problem) bool { return p.More > 0 }) {
		return problems
	}
	kept, left := MostSevere(problems, most)
	if left == 0 {
		return kept
	}
	if len(kept) == most {
		kept, left = MostSevere(problems, most-1)
	}
	return append(kept, MoreProblems(left))
}

// ProblemList collects problems. It keeps at most MaxProblems of each rank and counts the others. The
// zero value is an empty list.
type ProblemList struct {
	counts [4]int // the number kept, by rank
	list   []Problem
	more   int
}

// Full reports whether Add would only count this problem. The caller then need not format its text.
func (l *ProblemList) Full(p Problem) bool { return l.counts[p.rank()] >= MaxProblems }

// Add adds problems.
func (l *ProblemList) Add(problems ...Problem) {
	for _, p := range problems {
		if p.More > 0 || l.Full(p) {
			l.more += p.count()
			continue
		}
		l.counts[p.rank()]++
		l.list = append(l.list, p)
	}
}

// Contains reports whether a problem of the list meets a condition.
func (l *ProblemList) Contains(is func(Problem) bool) bool { return slices.ContainsFunc(l.list, is) }

// List returns at most MaxProblems problems.
func (l *ProblemList) List() []Problem {
	if l.more == 0 {
		return LimitProblems(l.list, MaxProblems)
	}
	return LimitProblems(append(slices.Clip(l.list), MoreProblems(l.more)), MaxProblems)
}
