package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Problem is one error in a configuration, with its file, line and key.
type Problem struct {
	File string // "" if the configuration does not come from a file
	Line int    // 0 if the problem has no line
	Path string // e.g. hooks.cpuset.unlabelled; "" for the whole file
	What string // what is wrong, without the key
}

// String returns "file:line: path: what". It leaves out a file, line or path that is not set.
func (p Problem) String() string {
	at := p.File
	if at != "" && p.Line > 0 {
		at += ":" + strconv.Itoa(p.Line)
	}
	known := slices.DeleteFunc([]string{at, p.Path}, func(part string) bool { return part == "" })
	return strings.Join(append(known, p.What), ": ")
}

// Error is a refused configuration with all its problems.
type Error struct{ Problems []Problem }

// Error returns one line per problem.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// errorOf returns an *Error with the problems, sorted by line and key; nil if there are none.
func errorOf(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), strings.Compare(a.Path, b.Path))
	})
	return &Error{Problems: problems}
}

// quoteShort quotes a text of a document, and cuts it if it is long.
func quoteShort(s string) string {
	const most = 60
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most-3], "") + "..."
	}
	return fmt.Sprintf("%q", s)
}
