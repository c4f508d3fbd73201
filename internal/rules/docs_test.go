package rules

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the list of docs/rules.md")

// TestDocs: docs/rules.md lists the variables that expressions can read.
func TestDocs(t *testing.T) {
	const page, from, to = "../../docs/rules.md", "internal/rules/variables.go -->\n", "<!-- end -->"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(text), from)
	_, tail, ended := strings.Cut(rest, to)
	if !found || !ended {
		t.Fatal("the page has no list")
	}
	table := &strings.Builder{}
	for _, v := range Variables() {
		line := "*"
		for word := range strings.FieldsSeq(fmt.Sprintf("`%s` (%s): %s", v.Name, v.Type, v.About)) {
			if len(line)+len(word) > 118 {
				table.WriteString(line + "\n")
				line = " "
			}
			line += " " + word
		}
		table.WriteString(line + "\n")
	}
	want := head + from + table.String() + to + tail
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want != string(text) && !*update {
		t.Error("docs/rules.md is stale: go test ./internal/rules -run TestDocs -update")
	}
}
