package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// corePackages has the packages that decide and apply. Packages in directories below them also belong to the core.
var corePackages = []string{
	"internal/conductor", "internal/engine", "internal/keeper", "internal/record", "internal/runtimesync", "internal/nodeview", "internal/facts",
	"internal/placement/none", "internal/placement/pools", "internal/placement/kubelet", "internal/placement/balloons", "internal/placement/topologyaware", "internal/placement/class",
}

// isCore reports whether a package belongs to the core.
func isCore(name string) bool {
	return slices.ContainsFunc(corePackages, func(core string) bool { return name == core || strings.HasPrefix(name, core+"/") })
}

// report returns the text that the command prints without -write.
func (s *size) report() string {
	var b strings.Builder
	b.WriteString("lines of code, without comments, blanks, tests, generated code, simulator and fakes\n\n")
	all, core := 0, 0
	for _, p := range s.packagesBySize() {
		mark := ""
		if isCore(p.name) {
			mark, core = " (core)", core+p.lines
		}
		all += p.lines
		fmt.Fprintf(&b, "%7d  %s%s\n", p.lines, p.name, mark)
	}
	fmt.Fprintf(&b, "%7d  all core packages\n%7d  all packages\n\nmethods and fields of the biggest types\n\n", core, all)
	for i, t := range s.biggestTypes() {
		if i == 25 && !t.exceedsLimit() {
			break
		}
		note := ""
		if t.exceedsLimit() {
			note = "  more than " + fmt.Sprintf("%d methods or %d fields", maxMethods, maxFields)
		}
		fmt.Fprintf(&b, "%5d %5d  %s%s\n", t.methods, t.fields, t.name, note)
	}
	fmt.Fprintf(&b, "\nlines of functions with more than %d lines\n\n", maxFunctionLines)
	for _, f := range s.longFunctions {
		fmt.Fprintf(&b, "%7d  %s\n", f.lines, f.name)
	}
	return b.String()
}

func (s *size) packagesBySize() []packageSize {
	return slices.SortedFunc(slices.Values(s.packages), func(a, b packageSize) int { return cmp.Or(b.lines-a.lines, cmp.Compare(a.name, b.name)) })
}

// exceedsLimit reports whether a type has more methods or fields than allowed. Plain data may have any number of fields.
func (t typeSize) exceedsLimit() bool {
	return t.methods > maxMethods || !t.plain && t.fields > maxFields
}

// biggestTypes returns all types, those that exceed a limit first, and then those with the most methods.
func (s *size) biggestTypes() []typeSize {
	rank := func(t typeSize) int {
		if t.exceedsLimit() {
			return 1000 + t.methods
		}
		return t.methods
	}
	return slices.SortedFunc(slices.Values(s.types), func(a, b typeSize) int {
		return cmp.Or(rank(b)-rank(a), b.fields-a.fields, cmp.Compare(a.name, b.name))
	})
}

// precision is how exactly the table shows numbers of lines: the table rounds each number to a multiple of precision,
// so that most changes of code do not change the table.
const precision = 50

// table returns the table of ARCHITECTURE.md.
func (s *size) table() string {
	var b strings.Builder
	b.WriteString("| package | lines of code | its biggest type | methods | fields |\n| --- | --- | --- | --- | --- |\n")
	sum := 0
	for _, p := range s.packagesBySize() {
		if !isCore(p.name) {
			continue
		}
		sum += p.lines
		name, methods, fields := "–", "–", "–"
		for _, t := range s.biggestTypes() {
			if packageName, short, _ := cutLast(t.name); packageName == p.name && t.methods > 0 {
				name, methods, fields = "`"+short+"`", fmt.Sprint(t.methods), fmt.Sprint(t.fields)
				break
			}
		}
		fmt.Fprintf(&b, "| `%s` | %d | %s | %s | %s |\n", p.name, roundedLines(p.lines), name, methods, fields)
	}
	fmt.Fprintf(&b, "| together | %d | | | |\n", roundedLines(sum))
	return b.String()
}

// roundedLines rounds a number of lines to a multiple of precision.
func roundedLines(n int) int { return (n + precision/2) / precision * precision }

// cutLast cuts a name at its last dot.
func cutLast(name string) (before, after string, found bool) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return name, "", false
	}
	return name[:i], name[i+1:], true
}

// The comments before and after the table in ARCHITECTURE.md.
const (
	tableStart = "<!-- Written by make generate: internal/tools/size -->\n"
	tableEnd   = "<!-- end -->\n"
)

// withTable replaces the table between tableStart and tableEnd in a text.
func withTable(text, table string) (string, error) {
	before, rest, opened := strings.Cut(text, tableStart)
	_, after, closed := strings.Cut(rest, tableEnd)
	if !opened || !closed {
		return "", fmt.Errorf("the file has no table, because it lacks the comment %q or %q", tableStart, tableEnd)
	}
	return before + tableStart + table + tableEnd + after, nil
}

// rewriteTable writes the table of the core packages into a file.
func rewriteTable(dir, file string, s *size) error {
	name := filepath.Join(dir, file)
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	rewritten, err := withTable(string(text), s.table())
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(name, []byte(rewritten), 0o644)
}
