package main

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestWrap(t *testing.T) {
	text := strings.Repeat("some words and `a code span with spaces`, of 100 % or - 1. more ", 20)
	got := listItem(text)
	for i, line := range strings.Split(strings.TrimSuffix(got, "\n"), "\n") {
		if n := utf8.RuneCountInString(line); n > columns {
			t.Errorf("line %d has %d columns: %s", i+1, n, line)
		}
		if strings.Count(line, "`")%2 == 1 {
			t.Errorf("line %d breaks a code span: %s", i+1, line)
		}
		if i > 0 && strings.HasPrefix(strings.TrimSpace(line), "- ") {
			t.Errorf("line %d begins a list: %s", i+1, line)
		}
	}
	if back := strings.Join(strings.Fields(got), " "); back != "* "+strings.TrimSpace(text) {
		t.Errorf("the words differ:\n%s\n%s", back, text)
	}
}
