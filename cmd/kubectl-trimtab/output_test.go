package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode"
)

// hostile is a name that clears the screen by C0 and by C1 control characters, and reverses the direction
// of the text.
const hostile = "n1\x1b[2J\u009b2J\u202e\x07"

// harmless fails if a text contains terminal control characters.
func harmless(t *testing.T, what, text string) {
	t.Helper()
	for _, r := range text {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Errorf("%s: %U reaches the terminal in %q", what, r, text)
		}
	}
	if !strings.Contains(text, "n1") {
		t.Errorf("%s: the text itself is missing in %q", what, text)
	}
}

func TestTableIsHarmless(t *testing.T) {
	var b bytes.Buffer
	if err := writeTable(&b, "NODE\tNOTE", [][]string{{hostile, hostile}}); err != nil {
		t.Fatal(err)
	}
	harmless(t, "table", b.String())
	harmless(t, "event", event{node: hostile}.String())
	root, _ := newRoot()
	b.Reset()
	root.SetErr(&b)
	warn(root, "node %s", hostile)
	harmless(t, "warning", b.String())
	harmless(t, "text of lines", cleanLines(errors.Join(errors.New(hostile), errors.New(hostile)).Error()))
}
