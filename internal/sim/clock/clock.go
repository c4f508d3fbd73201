// Package clock is a clock for tests whose wall clock can be stepped while the
// time that passes goes on, as NTP or an administrator steps that of a node. Its
// readings are such as time.Now returns: Sub, Before and After of two of them go by
// the monotonic clock, until something strips it. It knows nothing of timers.
package clock

import (
	"sync"
	"time"
	"unsafe"
)

// Clock is a wall clock and a monotonic clock. Its methods may be called at once
// from many goroutines.
type Clock struct {
	source func() time.Time
	start  time.Time

	mu   sync.Mutex
	step time.Duration // of the wall clock alone
	gone time.Duration // beside what passed by source
}

// New returns a clock on which as much time passes as by source, which is time.Now
// or constant.
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

// The layout of a time.Time that has a monotonic reading, as package time documents
// it in its source: a flag, 33 bits of seconds since 1885 and 30 bits of
// nanoseconds, then the monotonic clock. TestReadings fails where it changes.
const (
	monotonic = 1 << 63
	since1885 = 2682288000 // seconds from 1885 to 1970
)

// reading makes a time of both clocks. Nothing but time.Now makes one otherwise,
// and that reads the node's own.
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
