package rules

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the list of docs/rules.md")

// TestDocs: docs/rules.md lists the variables that expressions can read, and the fields that rules can set.
func TestDocs(t *testing.T) {
	const page = "../../docs/rules.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	want := within(t, string(text), "internal/rules/variables.go", listOfVariables())
	want = within(t, want, "internal/rules/fields.go", listOfFields())
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want != string(text) && !*update {
		t.Error("docs/rules.md is stale: go test ./internal/rules -run TestDocs -update")
	}
}

// within returns a page with another list where it has the one that source makes.
func within(t *testing.T, page, source, list string) string {
	t.Helper()
	from := source + " -->\n"
	head, rest, found := strings.Cut(page, from)
	_, tail, ended := strings.Cut(rest, "<!-- end -->")
	if !found || !ended {
		t.Fatalf("the page has no list of %s", source)
	}
	return head + from + list + "<!-- end -->" + tail
}

func listOfVariables() string {
	list := &strings.Builder{}
	for _, v := range Variables() {
		wrap(list, fmt.Sprintf("`%s` (%s): %s", v.Name, v.Type, v.About))
	}
	return list.String()
}

func listOfFields() string {
	list := &strings.Builder{}
	for _, f := range SettableFields() {
		value := f.Unit
		if form, has := textForms[f.Field]; has {
			value = form.form
		}
		if f.Range != "" {
			value, _, _ = strings.Cut(value, ", -1")
			value, _, _ = strings.Cut(value, " (")
			if value, _, _ = strings.Cut(value, "-1000.."); value != "" {
				value += ", "
			}
			value += f.Range
		}
		text := fmt.Sprintf("`%s`: %s", f.Name, value)
		if f.Key != "" {
			text += "; `key`: " + f.Key
		}
		switch {
		case slices.Contains(podOnlyFields, f.Field):
			text += "; `scope: pod`"
		case slices.Contains(podFields, f.Field):
			text += "; also with `scope: pod`"
		}
		wrap(list, text)
	}
	for _, f := range PlacementFields() {
		wrap(list, fmt.Sprintf("not `%s`: %s", f[0], f[1]))
	}
	return list.String()
}

// wrap adds one line of a list, in columns that docs may have.
func wrap(list *strings.Builder, text string) {
	line := "*"
	for word := range strings.FieldsSeq(text) {
		if len(line)+len(word) > 118 {
			list.WriteString(line + "\n")
			line = " "
		}
		line += " " + word
	}
	list.WriteString(line + "\n")
}
