package term

import (
	"fmt"
	"strings"
	"unicode"
)

// Clean replaces unprintable characters by "?". Then text of other users, such as an annotation, is safe to print.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// Count formats a number with a noun in singular, such as "1 pod" or "2 pods".
func Count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// Cut shortens a text to a number of columns. A shortened text ends in "…".
func Cut(text string, columns int) string {
	runes := []rune(text)
	if len(runes) <= columns {
		return text
	}
	return string(runes[:columns-1]) + "…"
}
