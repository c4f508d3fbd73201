package cri

import (
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/sim/clock"
)

// TestUnannouncedThroughSteps steps the wall clock in both directions: only the time for which an object
// was listed counts, and objects that are not listed any more are forgotten.
func TestUnannouncedThroughSteps(t *testing.T) {
	for _, step := range []time.Duration{0, -time.Hour, time.Hour} {
		start := time.Unix(1e9, 0)
		clk := clock.New(func() time.Time { return start })
		s := newUnannouncedObjects(clk.Now)
		look := func() bool { s.begin(); return s.isOverdue("a") }
		if look() {
			t.Errorf("a step by %v: old at once", step)
		}
		clk.Step(step)
		if clk.Advance(unannouncedAfter / 2); look() {
			t.Errorf("a step by %v: old after half the time", step)
		}
		if clk.Advance(unannouncedAfter/2 + 1); !look() {
			t.Errorf("a step by %v: not old after %v", step, unannouncedAfter)
		}
		s.begin()
		s.begin()
		if len(s.firstListed)+len(s.nextListed) != 0 || look() {
			t.Errorf("a step by %v: what went is still known", step)
		}
	}
}
