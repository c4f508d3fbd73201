package lifecycle

import (
	"fmt"
	"slices"
)

// MaxProblems limits the problems that the agent keeps and logs for one pod. So the text of a
// pod's author cannot fill log, journal and status.
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

// count returns how many problems this one stands for.
func (p Problem) count() int {
	if p.More > 0 {
		return p.More
	}
	return 1
}

// MoreProblems returns a problem that stands for n unlisted problems.
func MoreProblems(n int) Problem {
	return Problem{Reason: fmt.Sprintf("and %d more problems", n), Warning: true, More: n}
}

// CountProblems returns how many problems a list stands for, unlisted ones included.
func CountProblems(problems []Problem) int {
	n := 0
	for _, p := range problems {
		n += p.count()
	}
	return n
}

// Worst returns at most most problems of a list, refusals first and warnings last, and the
// number of the others. A list that is short enough keeps its order.
func Worst(problems []Problem, most int) (kept []Problem, left int) {
	more := 0
	kept = slices.DeleteFunc(slices.Clone(problems), func(p Problem) bool { more += p.More; return p.More > 0 })
	if most = max(most, 0); len(kept) > most {
		slices.SortStableFunc(kept, func(a, b Problem) int { return a.rank() - b.rank() })
		more += len(kept) - most
		kept = slices.Clip(kept[:most])
	}
	return kept, more
}

// Bound shortens a list of problems. The last problem of a shortened list has the number of
// problems that were left out.
func Bound(problems []Problem, most int) []Problem {
	if len(problems) <= most && !slices.ContainsFunc(problems, func(p Problem) bool { return p.More > 0 }) {
		return problems
	}
	kept, left := Worst(problems, most)
	if left == 0 {
		return kept
	}
	if len(kept) == most {
		kept, left = Worst(problems, most-1)
	}
	return append(kept, MoreProblems(left))
}

// ProblemList collects problems and keeps the worst: at most a fixed number of each rank. The
// zero value is empty.
type ProblemList struct {
	held [4]int // the number kept, by rank
	list []Problem
	more int
}

// Full reports whether the list would only count this problem, so that the caller need not
// format its text.
func (l *ProblemList) Full(p Problem) bool { return l.held[p.rank()] >= MaxProblems }

// Add adds problems.
func (l *ProblemList) Add(problems ...Problem) {
	for _, p := range problems {
		if p.More > 0 || l.Full(p) {
			l.more += p.count()
			continue
		}
		l.held[p.rank()]++
		l.list = append(l.list, p)
	}
}

// Contains reports whether a problem of the list meets a condition.
func (l *ProblemList) Contains(is func(Problem) bool) bool { return slices.ContainsFunc(l.list, is) }

// List returns at most MaxProblems problems.
func (l *ProblemList) List() []Problem {
	if l.more == 0 {
		return Bound(l.list, MaxProblems)
	}
	return Bound(append(slices.Clip(l.list), MoreProblems(l.more)), MaxProblems)
}
