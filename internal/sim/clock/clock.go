// Package clock has a clock for tests. A test can step the wall clock, as NTP or an administrator does, while the
// monotonic clock continues. Now returns times with the readings of both clocks, as time.Now does. The clock has no
// timers.
package clock

import (
	"sync"
	"time"
	"unsafe"
)

// Clock is a wall clock and a monotonic clock. Its methods are safe for concurrent use.
type Clock struct {
	source func() time.Time
	start  time.Time // the time of source when the clock was made

	mu       sync.Mutex
	step     time.Duration // the sum of the steps of the wall clock
	advanced time.Duration // the sum of the durations passed to Advance
}

// New returns a clock that runs like source. The function source is time.Now, or it always returns the same time.
func New(source func() time.Time) *Clock { return &Clock{source: source, start: source()} }

// Now returns the current time, with the readings of both clocks.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := c.source().Sub(c.start) + c.advanced
	return timeWithReadings(c.start.Add(passed+c.step), time.Hour+passed) // the monotonic clock starts at one hour
}

// Step sets the wall clock forward by d, or back if d is negative. The monotonic clock does not change.
func (c *Clock) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.step += d
}

// Advance advances both clocks by d.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advanced += d
}

// These constants describe the layout of a time.Time with a monotonic reading, as documented in the source of package
// time. The time has a flag, 33 bits of seconds since 1885, 30 bits of nanoseconds, and the reading of the monotonic
// clock. TestReadings fails if the layout changes.
const (
	hasMonotonic = 1 << 63
	since1885    = 2682288000 // seconds from 1885 to 1970
)

// timeWithReadings makes a time with both readings. The standard library has no function for that except time.Now,
// which reads the host's clocks.
func timeWithReadings(wall time.Time, mono time.Duration) time.Time {
	t := time.Unix(0, 0)
	raw := (*struct {
		wall uint64
		ext  int64
	})(unsafe.Pointer(&t)) //nolint:gosec // only for tests; the constants above describe the layout
	raw.wall = hasMonotonic | uint64(wall.Unix()+since1885)<<30 | uint64(wall.Nanosecond())
	raw.ext = int64(mono)
	return t
}
