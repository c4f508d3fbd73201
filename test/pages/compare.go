package pages

import (
	"fmt"
	"regexp"
	"strings"
)

const elided = "..."

// matches reports whether the output matches the lines of a page: a line "..." stands for any number of
// lines, and "..." inside a line for any text. Spaces at the ends of lines are ignored.
func matches(want, have []string) bool {
	for len(want) > 0 && strings.TrimSpace(want[0]) != elided {
		if len(have) == 0 || !matchesLine(want[0], have[0]) {
			return false
		}
		want, have = want[1:], have[1:]
	}
	if len(want) == 0 {
		return len(have) == 0
	}
	for i := range len(have) + 1 {
		if matches(want[1:], have[i:]) {
			return true
		}
	}
	return false
}

func matchesLine(want, have string) bool {
	parts := strings.Split(strings.TrimRight(want, " "), elided)
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	// The omitted text may end with the spaces of a column.
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + " *$").MatchString(have)
}

// difference describes how the output differs from the page.
func difference(want, have []string) string {
	return fmt.Sprintf("the page shows:\n%s\nit printed:\n%s", quote(want), quote(have))
}

func quote(lines []string) string { return "  | " + strings.Join(lines, "\n  | ") }

// split returns the lines of an output without empty ones at its ends.
func split(out string) []string {
	out = strings.Trim(out, "\n")
	if out == "" {
		return nil
	}
	lines := strings.Split(out, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \r")
	}
	return lines
}
