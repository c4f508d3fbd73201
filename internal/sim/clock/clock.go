// Package clock is a clock for tests. Its wall clock can be stepped, as NTP or an administrator does, while its
// monotonic clock continues. Readings are like those of time.Now: Sub, Before and After use the monotonic clock until
// code strips it. There are no timers.
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

	mu   sync.Mutex
	step time.Duration // sum of the steps of the wall clock
	gone time.Duration // sum of Pass, added to the time of source
}

// New returns a clock that runs like source, which is time.Now or constant.
func New(source func() time.Time) *Clock { return &Clock{source: source, start: source()} }

// Now reads both clocks.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := c.source().Sub(c.start) + c.gone
	return reading(c.start.Add(passed+c.step), time.Hour+passed)
}

// Step sets the wall clock forward, or back where d is negative. No time passes.
func (c *Clock) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.step += d
}

// Pass lets time pass, on both clocks.
func (c *Clock) Pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone += d
}

// The layout of a time.Time with a monotonic reading, as the source of package time documents it: a flag, 33 bits of
// seconds since 1885 and 30 bits of nanoseconds, then the monotonic clock. TestReadings fails if the layout changes.
const (
	monotonic = 1 << 63
	since1885 = 2682288000 // seconds from 1885 to 1970
)

// reading makes a time with both clocks. In the standard library only time.Now can, and it reads the host's clocks.
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
