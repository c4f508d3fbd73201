package script

import (
	"fmt"
	"strings"
)

// Difference is a difference between the answers of two kernels to a step.
type Difference struct {
	Case, Step string
	What       string // "errno", or the file whose text differs
	A, B       string // the two answers, as text
	// Reason is why the difference is intended, or "".
	Reason string
}

// Compare returns the differences between the answers of two kernels to the same script.
func Compare(a, b []Answers) []Difference {
	var out []Difference
	if len(a) != len(b) {
		out = append(out, Difference{Case: "script", What: "cases", A: fmt.Sprint(len(a)), B: fmt.Sprint(len(b))})
	}
	for i := range min(len(a), len(b)) {
		if a[i].Case != b[i].Case || len(a[i].Steps) != len(b[i].Steps) {
			out = append(out, Difference{
				Case: a[i].Case, What: "steps", A: fmt.Sprintf("%s: %d", a[i].Case, len(a[i].Steps)), B: fmt.Sprintf("%s: %d", b[i].Case, len(b[i].Steps)),
			})
			continue
		}
		for j := range a[i].Steps {
			out = append(out, compareStep(a[i].Case, a[i].Steps[j], b[i].Steps[j])...)
		}
	}
	return out
}

func compareStep(name string, a, b Answer) []Difference {
	var out []Difference
	add := func(what, x, y string) {
		if x != y {
			out = append(out, Difference{Case: name, Step: a.Step, What: what, A: x, B: y})
		}
	}
	add("step", a.Step, b.Step)
	add("errno", resultOf(a.Err), resultOf(b.Err))
	if len(a.FileTexts) != len(b.FileTexts) {
		add("files", fmt.Sprint(len(a.FileTexts)), fmt.Sprint(len(b.FileTexts)))
		return out
	}
	for i := range a.FileTexts {
		add(a.FileTexts[i].File, a.FileTexts[i].Text, b.FileTexts[i].Text)
	}
	return out
}

// resultOf returns the name of an error, or "accepted" if there is none.
func resultOf(errno string) string {
	if errno == "" {
		return "accepted"
	}
	return errno
}

// Table formats differences as text for people: the name of each case, and below it one line for each difference.
func Table(nameA, nameB string, all []Difference) string {
	var b strings.Builder
	last, reason := "", ""
	for _, d := range all {
		if d.Case != last {
			fmt.Fprintf(&b, "%s\n", d.Case)
			last = d.Case
		}
		fmt.Fprintf(&b, "  %-44s %-28s %s %q, %s %q\n", d.Step, d.What, nameA, d.A, nameB, d.B)
		if d.Reason != "" && d.Reason != reason {
			fmt.Fprintf(&b, "    intended: %s\n", d.Reason)
		}
		reason = d.Reason
	}
	return b.String()
}
