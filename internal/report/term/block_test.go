package term

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWrap(t *testing.T) {
	for text, want := range map[string][]string{
		"":                   {""},
		"0-3,8-11,16-19":     {"0-3,8-11,", "16-19"},
		"one two three":      {"one two", "three"},
		"abcdefghijklmnop":   {"abcdefghij", "klmnop"},
		"a\nb":               {"a", "b"},
		"exactlyten":         {"exactlyten"},
		"ünïcödé wörds here": {"ünïcödé", "wörds here"},
	} {
		if d := cmp.Diff(want, Wrap(text, 10)); d != "" {
			t.Errorf("%q: %s", text, d)
		}
	}
}
