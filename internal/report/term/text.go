package term

import (
	"fmt"
	"strings"
	"unicode"
)

// Clean makes foreign text, such as values of annotations, safe for a table on a terminal.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// Count writes a number of things, as "1 pod" and "2 pods".
func Count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// Cut shortens a text to a number of columns and marks that it is shortened.
func Cut(text string, columns int) string {
	runes := []rune(text)
	if len(runes) <= columns {
		return text
	}
	return string(runes[:columns-1]) + "…"
}
