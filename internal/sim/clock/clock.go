// Package clock has a clock for tests. A test can step its wall clock, like NTP or an administrator, while its
// monotonic clock continues. Its times have both readings, like those of time.Now. It has no timers.
package clock

import (
	"sync"
	"time"
	"unsafe"
)

// Clock is a wall clock and a monotonic clock. Its methods are safe for concurrent use.
type Clock struct {
	source func() time.Time
	start  time.Time

	mu       sync.Mutex
	step     time.Duration // the sum of the steps of the wall clock
	advanced time.Duration // the sum of the calls of Advance
}

// New returns a clock that runs like source. source is time.Now, or returns a constant time.
func New(source func() time.Time) *Clock { return &Clock{source: source, start: source()} }

// Now returns the current time, with the readings of both clocks.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := c.source().Sub(c.start) + c.advanced
	return reading(c.start.Add(passed+c.step), time.Hour+passed)
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
// time. It has a flag, 33 bits of seconds since 1885, 30 bits of nanoseconds, and the monotonic clock. TestReadings
// fails if the layout changes.
const (
	monotonic = 1 << 63
	since1885 = 2682288000 // seconds from 1885 to 1970
)

// reading makes a time with both readings. The standard library has no function for that except time.Now, which reads
// the host's clocks.
func reading(wall time.Time, mono time.Duration) time.Time {
	t := time.Unix(0, 0)
	raw := (*struct {
		wall uint64
		ext  int64
	})(unsafe.Pointer(&t)) //nolint:gosec // a test kit: see the layout above
	raw.wall = monotonic | uint64(wall.Unix()+since1885)<<30 | uint64(wall.Nanosecond())
	raw.ext = int64(mono)
	return t
}
