package clock

import (
	"testing"
	"time"
)

// TestReadings checks that a step moves only the wall clock, and that a reading shows the step once its monotonic part
// is stripped.
func TestReadings(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 7, time.UTC)
	c := New(func() time.Time { return noon })
	begin := c.Now()
	if !begin.Equal(noon) {
		t.Fatalf("it begins at %v", begin)
	}
	for _, step := range []time.Duration{-5 * time.Hour, 48 * time.Hour, -43 * time.Hour} {
		before := c.Now()
		c.Step(step)
		c.Advance(3 * time.Second)
		now := c.Now()
		if d := now.Sub(before); d != 3*time.Second || !now.After(before) || !before.Add(2*time.Second).Before(now) {
			t.Errorf("a step by %v: %v have passed", step, d)
		}
		if d := now.Round(0).Sub(before.Round(0)); d != step+3*time.Second {
			t.Errorf("a step by %v moved the wall clock by %v", step, d)
		}
		if d := time.Unix(0, now.UnixNano()).Sub(time.Unix(0, before.UnixNano())); d != step+3*time.Second {
			t.Errorf("a step by %v moved nanoseconds since 1970 by %v", step, d)
		}
	}
	if now := c.Now(); !now.Round(0).Equal(noon.Add(9 * time.Second)) {
		t.Errorf("all steps together end at %v", now)
	}
}
