package term

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/test/clock"
)

func FuzzClean(f *testing.F) {
	f.Add("\x1b]0;x\a\u202e")
	f.Add(strings.Repeat("\u202e\xff", 60_000))
	f.Fuzz(func(t *testing.T, s string) {
		defer clock.Watch(t, len(s))()
		for _, r := range Clean(s) {
			if r < ' ' || r == 0x7f || r == 0x202e {
				t.Errorf("%q is left of %q", r, s)
			}
		}
	})
}
