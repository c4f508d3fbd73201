package lifecycle

import (
	"fmt"
	"slices"
)

// MaxProblems limits the problems that the agent stores and logs for one pod, so that the annotations of
// one pod cannot fill the log, the journal and the status.
const MaxProblems = 20

// rank returns the rank of a problem, from the most to the least important: refused requests (0), problems
// because of which strict mode refuses the pod (1), unserved requests (2), and warnings (3).
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

// count returns 1 for an ordinary problem. For an entry that replaces other problems, it returns their number.
func (p Problem) count() int {
	if p.More > 0 {
		return p.More
	}
	return 1
}

// MoreProblems returns an entry that replaces n problems of a list that was too long.
func MoreProblems(n int) Problem {
	return Problem{Reason: fmt.Sprintf("and %d more problems", n), Warning: true, More: n}
}

// CountProblems returns the number of problems in a list. An entry that replaces other problems counts as all of them.
func CountProblems(problems []Problem) int {
	n := 0
	for _, p := range problems {
		n += p.count()
	}
	return n
}

// MostSevere returns the most severe problems of a list, but at most limit problems, and the number of problems that it
// omitted. It sorts a list that is too long by severity: refusals first, warnings last. It always omits the entries
// that replace other problems, and counts all problems that they replace.
func MostSevere(problems []Problem, limit int) (kept []Problem, omitted int) {
	more := 0
	kept = slices.DeleteFunc(slices.Clone(problems), func(p Problem) bool { more += p.More; return p.More > 0 })
	if limit = max(limit, 0); len(kept) > limit {
		slices.SortStableFunc(kept, func(a, b Problem) int { return a.rank() - b.rank() })
		more += len(kept) - limit
		kept = slices.Clip(kept[:limit])
	}
	return kept, more
}

// LimitProblems shortens a list of problems to at most limit entries. The last entry of a shortened list says
// how many more problems there are.
func LimitProblems(problems []Problem, limit int) []Problem {
	if len(problems) <= limit && !slices.ContainsFunc(problems, func(p Problem) bool { return p.More > 0 }) {
		return problems
	}
	kept, omitted := MostSevere(problems, limit)
	if omitted == 0 {
		return kept
	}
	if len(kept) == limit {
		kept, omitted = MostSevere(problems, limit-1)
	}
	return append(kept, MoreProblems(omitted))
}

// ProblemList collects problems. It has at most MaxProblems problems of each rank, and only counts all others.
// The zero value is an empty list.
type ProblemList struct {
	counts [4]int // the number of problems in list, by rank
	list   []Problem
	more   int // the number of problems that are not in list
}

// Full reports whether the list already has MaxProblems problems of the rank of p. Add then only counts p, so the
// caller need not format the text of p.
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
func (l *ProblemList) Contains(meets func(Problem) bool) bool {
	return slices.ContainsFunc(l.list, meets)
}

// List returns at most MaxProblems problems. If there are more, the last entry says how many more.
func (l *ProblemList) List() []Problem {
	if l.more == 0 {
		return LimitProblems(l.list, MaxProblems)
	}
	return LimitProblems(append(slices.Clip(l.list), MoreProblems(l.more)), MaxProblems)
}
