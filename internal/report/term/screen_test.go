package term

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/test/clock"
)

// shown returns what a terminal gets from pieces of output.
func shown(t testing.TB, pieces ...string) string {
	t.Helper()
	var out bytes.Buffer
	s := NewScreen(&out)
	for _, p := range pieces {
		if n, err := s.Write([]byte(p)); err != nil || n != len(p) {
			t.Fatalf("%d of %d bytes, %v", n, len(p), err)
		}
	}
	return out.String()
}

// TestScreen: sequences that draw pass, and all others do not.
func TestScreen(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"text", "CPUs 0–3 \t\r\nüber ▇", "CPUs 0–3 \t\r\nüber ▇"},
		{"colours", "\x1b[1;38;2;255;0;0mred\x1b[4:3m\x1b[m", "\x1b[1;38;2;255;0;0mred\x1b[4:3m\x1b[m"},
		{"moves", "\x1b[H\x1b[2J\x1b[12;4H\x1b[3A\x1b[K\x1b[5X\x1b[2;20r\x1bM\b", "\x1b[H\x1b[2J\x1b[12;4H\x1b[3A\x1b[K\x1b[5X\x1b[2;20r\x1bM\b"},
		{"the other screen", "\x1b[?1049h\x1b[?25l", "\x1b[?1049h\x1b[?25l"},
		{"a title", "a\x1b]0;root\x07b\x1b]2;root\x1b\\c", "abc"},
		{"the clipboard", "\x1b]52;c;cm0gLXJmIH4K\x07", ""},
		{"a link", "\x1b]8;;http://evil.example\x1b\\here\x1b]8;;\x1b\\", "here"},
		{"questions", "\x1b[c\x1b[6n\x1b[>q\x1b[?2026$p\x1b[21t\x1bP$qm\x1b\\\x05", ""},
		{"the mouse", "\x1b[?1000h\x1b[?1006h", ""},
		{"character sets", "\x1b(0\x1b%@\x0e", ""},
		{"a reset", "\x1bc", ""},
		{"eight bits", "\xc2\x9b6n\xc2\x9d0;x\x07\x9bc", "?6n?0;x?c"},
		{"right to left", "a\u202eb", "a?b"},
		{"broken off", "\x1b[12\x1b[mx\x1b", "\x1b[mx"},
		{"a huge number", "\x1b[99999999b", ""},
		{"too long", "\x1b[" + strings.Repeat("1;", 40) + "mx", strings.Repeat("1;", 40) + "mx"},
	} {
		if got := shown(t, tc.in); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
		if got := shown(t, strings.Split(tc.in, "")...); got != shown(t, tc.in) && !strings.Contains(tc.in, "\x9b") {
			t.Errorf("%s, byte by byte: %q", tc.name, got)
		}
	}
}

// TestScreenClose: modes that a program leaves on are switched off.
func TestScreenClose(t *testing.T) {
	var out bytes.Buffer
	s := NewScreen(&out)
	if _, err := s.Write([]byte("\x1b[?1049h\x1b[?25l\x1b[?2004h\x1b[?2004l\x1b]0;")); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if err := s.Close(); err != nil || out.String() != "\x1b[?1049l\x1b[?25h\x1b[m" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// FuzzScreen: only sequences that draw pass, however the text is split.
func FuzzScreen(f *testing.F) {
	f.Add("\x1b[1mx\x1b]0;t\x07", 3)
	f.Add("\x1b[?1049h\x1b[?1000h\xc2", 1)
	drawing := regexp.MustCompile(`\x1b(\[(\?(1|7|25|1049|2004|2026)[hl]|[0-9;:]*[mHfABCDEFGJKLMPSTXZIdbr@])|[M78])`)
	f.Fuzz(func(t *testing.T, in string, at int) {
		defer clock.Watch(t, len(in))()
		at = min(max(at, 0), len(in))
		got := shown(t, in[:at], in[at:])
		for _, r := range drawing.ReplaceAllString(got, "") {
			if r < ' ' && !strings.ContainsRune("\r\n\t\b", r) || r >= 0x7f && r < 0xa0 || r == 0x202e {
				t.Errorf("%q is left of %q", got, in)
			}
		}
		if whole := shown(t, in); whole != got {
			t.Errorf("%q in one piece, %q in two", whole, got)
		}
	})
}
