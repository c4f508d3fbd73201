package pages

import (
	"fmt"
	"regexp"
	"strings"
)

// elided stands in a page for output that the page leaves out.
const elided = "..."

// matches reports whether the output of a command matches the lines that the page shows. A line "..." of the page
// stands for any number of lines, and "..." inside a line for any text. Spaces at the ends of lines do not count.
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

// matchesLine reports whether one line of output matches one line of the page.
func matchesLine(want, have string) bool {
	parts := strings.Split(strings.TrimRight(want, " "), elided)
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	// A page may leave out the end of a column together with the spaces after it.
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + " *$").MatchString(have)
}

// difference returns a text that shows the lines of the page and the lines of the output.
func difference(want, have []string) string {
	return fmt.Sprintf("the page shows:\n%s\nthe command printed:\n%s", quote(want), quote(have))
}

// quote returns the lines, indented, as one text.
func quote(lines []string) string { return "  | " + strings.Join(lines, "\n  | ") }

// split returns the lines of an output, without empty lines at the beginning and the end.
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
