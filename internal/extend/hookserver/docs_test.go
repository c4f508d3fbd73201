package hookserver

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestDocs: the page for authors of hook servers has exactly the rows of the tables in the code.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../../docs/hook-servers.md")
	if err != nil {
		t.Fatal(err)
	}
	rules := ""
	for _, r := range Rules() {
		rules += fmt.Sprintf("* **%s**: %s\n", r.Field, r.Rule)
	}
	table := "| stage | call | at | its answer |\n| --- | --- | --- | --- |\n"
	for _, s := range Stages() {
		call, answer := "none in the protocol", "is not waited for"
		if s.Call != "" {
			call = "`" + s.Call + "`"
		}
		if s.EventWaits {
			answer = "only a failure counts"
		}
		if s.AnswerApplies {
			answer = "counts"
		}
		table += fmt.Sprintf("| `%s` | %s | %s | %s |\n", s.Stage, call, s.Kind, answer)
	}
	// words is the text without line breaks.
	words := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	for what, want := range map[string]string{"rules": rules + "\n", "stages": table + "\n"} {
		_, have, _ := strings.Cut(string(page), "<!-- "+what+": a test compares this with the code -->\n")
		if have, _, _ = strings.Cut(have, "\n\n"); words(have) != words(want) {
			t.Errorf("docs/hook-servers.md lacks the %s as the code has them:\n%s", what, want)
		}
	}
	if !strings.Contains(string(page), SkipLabel) {
		t.Errorf("docs/hook-servers.md does not name %s", SkipLabel)
	}
}
