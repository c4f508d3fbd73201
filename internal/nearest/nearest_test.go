package nearest

import "testing"

func TestTo(t *testing.T) {
	words := []string{"status", "since", "output", "follow"}
	for word, want := range map[string]string{"sattus": "status", "SINCE": "since", "sinec": "since", "folow": "follow", "output": "output"} {
		got, d := Word(word, words)
		if got != want || d > 1 {
			t.Errorf("nearest to %q is %q at distance %d, want %q at most 1 away", word, got, d, want)
		}
	}
	if got, d := Word("x", nil); got != "" || d != -1 {
		t.Errorf("without candidates: %q, %d", got, d)
	}
}

func TestNearest(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"a", "", 1},
		{"", "abc", 3},
		{"socket", "sokcet", 1}, // a swap
		{"socket", "soket", 1},
		{"strict", "striict", 1},
		{"level", "label", 2},
		{"kitten", "sitting", 3},
	} {
		if got := distance(tc.a, tc.b); got != tc.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tc.a, tc.b, got, tc.want)
		}
		if got := distance(tc.b, tc.a); got != tc.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tc.b, tc.a, got, tc.want)
		}
	}
}
