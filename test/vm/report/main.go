// Command report reads the output of `go test -json` from standard input and prints the running tests. At the end
// it prints a table of the suites. For each suite, the table has the numbers of tests, the skipped tests with their
// reasons, and the failed tests with the end of their output. So the end of a long log shows what failed.
//
// go test -json ./... | report
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// event is one line of go test -json (cmd/internal/test2json).
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // in seconds
}

// test is a test or subtest.
type test struct {
	name        string
	action      string // the result: "pass", "fail" or "skip"; "" while the test runs
	took        time.Duration
	output      []string
	ran         bool // an event reported the start of the test
	hasSubtests bool // the test has subtests
}

// suite is one package.
type suite struct {
	name   string
	tests  []*test
	action string // the result: "pass", "fail" or "skip"
	took   time.Duration
	output []string // the output that belongs to no test
}

func main() {
	begun := time.Now()
	suites, err := read(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(2)
	}
	if !summarise(os.Stdout, suites, time.Since(begun)) {
		os.Exit(1)
	}
}

// read reads the events and returns the suites. It prints each test's start and end, and the whole output of a failed
// test.
func read(from io.Reader, to io.Writer) ([]*suite, error) {
	var all []*suite
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.Action == "build-output" {
			fmt.Fprintln(to, strings.TrimSuffix(e.Output+unparsedLine(err, lines.Text()), "\n")) // output of the build or text that is not JSON
			continue
		}
		if e.Package == "" {
			continue
		}
		i := slices.IndexFunc(all, func(s *suite) bool { return s.name == e.Package })
		if i < 0 {
			i, all = len(all), append(all, &suite{name: e.Package})
		}
		all[i].addEvent(e, to)
	}
	return all, lines.Err()
}

// unparsedLine returns text if err shows that the text could not be parsed as an event. If err is nil, it returns "".
func unparsedLine(err error, text string) string {
	if err == nil {
		return ""
	}
	return text
}

// progressPrefixes has the prefixes of progress messages. The messages come from the driver of the tests and the
// scripts of test/tools.
var progressPrefixes = []string{"vm: ", "tools: ", "kernel: ", "debian: "}

// addEvent adds an event to the suite, and prints the progress of its tests.
func (s *suite) addEvent(e event, to io.Writer) {
	took := time.Duration(e.Elapsed * float64(time.Second))
	if e.Action == "output" && slices.ContainsFunc(progressPrefixes, func(p string) bool { return strings.HasPrefix(e.Output, p) }) {
		fmt.Fprint(to, "    ", e.Output)
	}
	if e.Test == "" {
		switch e.Action {
		case "output":
			s.output = append(s.output, e.Output)
		case "pass", "fail", "skip":
			s.action, s.took = e.Action, took
		}
		return
	}
	t := s.test(e.Test)
	switch e.Action {
	case "run":
		t.ran = true
		if up := path.Dir(e.Test); up != "." {
			s.test(up).hasSubtests = true
		}
		fmt.Fprintf(to, "=== %s %s\n", path.Base(s.name), e.Test)
	case "output":
		t.output = append(t.output, e.Output)
	case "pass", "fail", "skip":
		t.action, t.took = e.Action, took
		fmt.Fprintf(to, "--- %s: %s %s (%.1f s)\n", strings.ToUpper(e.Action), path.Base(s.name), e.Test, took.Seconds())
		if e.Action == "fail" {
			fmt.Fprint(to, strings.Join(t.output, ""))
		}
	}
}

// test returns the suite's test with a name. It adds the test if the suite does not have it yet.
func (s *suite) test(name string) *test {
	for _, t := range s.tests {
		if t.name == name {
			return t
		}
	}
	t := &test{name: name}
	s.tests = append(s.tests, t)
	return t
}

// summarise prints the table of all suites and reports whether all suites passed.
func summarise(to io.Writer, suites []*suite, took time.Duration) bool {
	good := len(suites) > 0
	fmt.Fprintln(to)
	for _, s := range suites {
		if s.action != "skip" || len(s.tests) > 0 { // go test skips a package without tests
			good = s.summarise(to) && good
		}
	}
	verdict := "passed"
	if !good {
		verdict = "FAILED"
	}
	fmt.Fprintf(to, "== make e2e: %s in %.0f s\n", verdict, took.Seconds())
	return good
}

// summarise prints the suite's part of the table and reports whether the suite passed. A test that started and did not
// end has failed.
func (s *suite) summarise(to io.Writer) bool {
	count := map[string]int{}
	var notes []string
	var skipped skips
	for _, t := range s.tests {
		if !t.ran { // not a test: addEvent added this name because a test's name has a slash
			continue
		}
		if t.action == "" {
			t.action = "fail"
		}
		if t.hasSubtests && t.action != "fail" {
			continue
		}
		count[t.action]++
		switch t.action {
		case "skip":
			skipped.add(reason(t.output), t.name)
		case "fail":
			notes = append(notes, "   FAILED  "+t.name)
			if !t.hasSubtests {
				notes = append(notes, tailOf(t.output)...)
			}
		}
	}
	good := s.action == "pass" && count["fail"] == 0
	if !good {
		notes = append(notes, tailOf(s.output)...)
	}
	fmt.Fprintf(to, "== suite %-10s %3d passed, %d failed, %d skipped in %.0f s\n",
		path.Base(s.name), count["pass"], count["fail"], count["skip"], s.took.Seconds())
	skipped.print(to)
	for _, n := range notes {
		fmt.Fprintln(to, n)
	}
	return good
}

// skips are the skipped tests by reason, in the order in which the reasons occurred first.
type skips []skip

// skip has the names of all tests that were skipped for the same reason.
type skip struct {
	reason string
	names  []string
}

// add adds a skipped test.
func (all *skips) add(reason, name string) {
	for i := range *all {
		if r := &(*all)[i]; r.reason == reason {
			r.names = append(r.names, name)
			return
		}
	}
	*all = append(*all, skip{reason, []string{name}})
}

// print writes each reason with the names of its tests, in lines of at most 120 characters.
func (all skips) print(to io.Writer) {
	const width = 120
	for _, r := range all {
		fmt.Fprintf(to, "   skipped %d: %s\n", len(r.names), r.reason)
		line := "     "
		for _, name := range r.names {
			if len(line)+1+len(name) > width && strings.TrimSpace(line) != "" {
				fmt.Fprintln(to, line)
				line = "     "
			}
			line += " " + name
		}
		fmt.Fprintln(to, line)
	}
}

// reason returns the last message of a skipped test, without file and line. If the test has no message, the text says
// so.
func reason(output []string) string {
	for _, text := range slices.Backward(output) {
		if _, after, ok := strings.Cut(text, ".go:"); ok {
			if _, message, ok := strings.Cut(after, ": "); ok {
				return strings.TrimSpace(message)
			}
		}
	}
	return "the test gave no reason"
}

// tailOf returns the last lines of an output, indented, each of limited length.
func tailOf(output []string) []string {
	const most, width = 20, 500
	var kept []string
	for _, text := range output[max(0, len(output)-most):] {
		text = strings.TrimSuffix(text, "\n")
		if len(text) > width {
			text = strings.ToValidUTF8(text[:width], "") + "..."
		}
		kept = append(kept, "   "+text)
	}
	return kept
}
