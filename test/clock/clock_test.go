package clock_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/test/clock"
)

// failures records what a clock reports.
type failures struct {
	testing.TB

	said []string
}

func (f *failures) Helper() {}
func (f *failures) Errorf(format string, args ...any) {
	f.said = append(f.said, fmt.Sprintf(format, args...))
}

// quadratic compares each byte of a text with every other.
func quadratic(text string) (same int) {
	for i := range len(text) {
		for j := range len(text) {
			if text[i] == text[j] {
				same++
			}
		}
	}
	return same
}

// TestClock: code that reads its input once never fails, code that reads it again for each byte does.
func TestClock(t *testing.T) {
	text := strings.Repeat("0-4095,", 3_000)
	for name, watch := range map[string]func(testing.TB, int) func(){"thread": clock.Watch, "process": clock.WatchAll} {
		var linear, square failures
		same := 0
		end := watch(&linear, len(text))
		strings.Count(text, ",")
		end()
		end = watch(&square, len(text))
		for range 12 { // the race detector raises the limit by that factor
			same += quadratic(text)
		}
		end()
		if same == 0 || len(linear.said) > 0 || len(square.said) != 1 {
			t.Errorf("%s: once %v, again for each byte %v", name, linear.said, square.said)
		}
	}
}

// TestBound: code that is too slow in every run fails, code that is too slow once does not.
func TestBound(t *testing.T) {
	text := strings.Repeat("0-4095,", 3_000)
	var once, always failures
	const long, fewer = 3, -240_000 // a negative number of bytes leaves 2 ms
	runs, same := 0, 0
	clock.Bound(&once, fewer, func() {
		if runs++; runs == 1 {
			for range long {
				same += quadratic(text)
			}
		}
	})
	clock.Bound(&always, fewer, func() {
		for range long {
			same += quadratic(text)
		}
	})
	if runs != 2 || same == 0 || len(once.said) > 0 || len(always.said) != 1 {
		t.Errorf("once, in %d runs: %v; always: %v", runs, once.said, always.said)
	}
}
