package doctor

import (
	"fmt"
	"io"
	"strings"

	"github.com/trimtab/trimtab/internal/report/term"
)

// resultWords has the word that Render prints for each result of a check.
var resultWords = map[Result]string{OK: "ok", Problem: "PROBLEM", Unknown: "?"}

// Render prints a report for users: one line for each check. Below a problem it prints why the check matters, and
// below each check that is not ok what to do.
func Render(w io.Writer, r Report) error {
	wide := 0
	for _, c := range r.Checks {
		wide = max(wide, len(c.Name))
	}
	var b strings.Builder
	for _, c := range r.Checks {
		fmt.Fprintf(&b, "%-8s %-*s  %s\n", resultWords[c.Result], wide, c.Name, term.Clean(c.Found))
		if c.Result == OK {
			continue
		}
		if c.Result == Problem {
			fmt.Fprintf(&b, "%-8s %-*s  why: %s\n", "", wide, "", term.Clean(c.Why))
		}
		fmt.Fprintf(&b, "%-8s %-*s  do:  %s\n", "", wide, "", term.Clean(c.Do))
	}
	fmt.Fprintf(&b, "\n%s, %d unknown, %d ok\n", term.Count(r.Problems, "problem"), r.Unknown, len(r.Checks)-r.Problems-r.Unknown)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
