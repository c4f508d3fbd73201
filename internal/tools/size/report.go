package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// core has the packages that decide and apply. Packages below them also belong to the core.
var core = []string{
	"internal/conductor", "internal/engine", "internal/keeper", "internal/record", "internal/runtimesync", "internal/nodeview", "internal/facts",
	"internal/placement/none", "internal/placement/pools", "internal/placement/kubelet", "internal/placement/balloons", "internal/placement/topologyaware", "internal/placement/class",
}

func isCore(name string) bool {
	return slices.ContainsFunc(core, func(h string) bool { return name == h || strings.HasPrefix(name, h+"/") })
}

// report returns the printed report.
func (s *size) report() string {
	var b strings.Builder
	b.WriteString("lines of code, without comments, blanks, tests, generated code, simulator and fakes\n\n")
	all, inner := 0, 0
	for _, p := range s.sorted() {
		mark := ""
		if isCore(p.name) {
			mark, inner = " (core)", inner+p.lines
		}
		all += p.lines
		fmt.Fprintf(&b, "%7d  %s%s\n", p.lines, p.name, mark)
	}
	fmt.Fprintf(&b, "%7d  the core\n%7d  all\n\nmethods, fields of the biggest types\n\n", inner, all)
	for i, t := range s.biggest() {
		if i == 25 && !t.exceedsLimit() {
			break
		}
		note := ""
		if t.exceedsLimit() {
			note = "  over " + fmt.Sprintf("%d methods or %d fields", maxMethods, maxFields)
		}
		fmt.Fprintf(&b, "%5d %5d  %s%s\n", t.methods, t.fields, t.name, note)
	}
	fmt.Fprintf(&b, "\nfunctions of more than %d lines\n\n", maxFunctionLines)
	for _, f := range s.long {
		fmt.Fprintf(&b, "%7d  %s\n", f.lines, f.name)
	}
	return b.String()
}

func (s *size) sorted() []pkg {
	return slices.SortedFunc(slices.Values(s.packages), func(a, b pkg) int { return cmp.Or(b.lines-a.lines, cmp.Compare(a.name, b.name)) })
}

// exceedsLimit reports whether a type exceeds a limit.
func (t typ) exceedsLimit() bool { return t.methods > maxMethods || !t.plain && t.fields > maxFields }

// biggest returns the biggest types, those that exceed a limit first.
func (s *size) biggest() []typ {
	rank := func(t typ) int {
		if t.exceedsLimit() {
			return 1000 + t.methods
		}
		return t.methods
	}
	return slices.SortedFunc(slices.Values(s.types), func(a, b typ) int {
		return cmp.Or(rank(b)-rank(a), b.fields-a.fields, cmp.Compare(a.name, b.name))
	})
}

// precision is the unit to which the table rounds lines of code, so that few changes alter the table.
const precision = 50

// table returns the table of ARCHITECTURE.md.
func (s *size) table() string {
	var b strings.Builder
	b.WriteString("| package | lines of code | its biggest type | methods | fields |\n| --- | --- | --- | --- | --- |\n")
	sum := 0
	for _, p := range s.sorted() {
		if !isCore(p.name) {
			continue
		}
		sum += p.lines
		name, methods, fields := "–", "–", "–"
		for _, t := range s.biggest() {
			if of, short, _ := cutLast(t.name); of == p.name && t.methods > 0 {
				name, methods, fields = "`"+short+"`", fmt.Sprint(t.methods), fmt.Sprint(t.fields)
				break
			}
		}
		fmt.Fprintf(&b, "| `%s` | %d | %s | %s | %s |\n", p.name, rounded(p.lines), name, methods, fields)
	}
	fmt.Fprintf(&b, "| together | %d | | | |\n", rounded(sum))
	return b.String()
}

func rounded(n int) int { return (n + precision/2) / precision * precision }

func cutLast(name string) (before, after string, found bool) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return name, "", false
	}
	return name[:i], name[i+1:], true
}

// The marks around the table.
const (
	opening = "<!-- Written by make generate: internal/tools/size -->\n"
	closing = "<!-- end -->\n"
)

// withTable replaces the table between the marks of a text.
func withTable(text, table string) (string, error) {
	before, rest, opened := strings.Cut(text, opening)
	_, after, closed := strings.Cut(rest, closing)
	if !opened || !closed {
		return "", errors.New("no marks for the table")
	}
	return before + opening + table + closing + after, nil
}

func rewrite(dir, file string, s *size) error {
	name := filepath.Join(dir, file)
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	now, err := withTable(string(text), s.table())
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(name, []byte(now), 0o644)
}
