package conductor

import (
	"math"
	"sync/atomic"
	"time"
)

// uptimes are the times of events, relative to the conductor's start, so that changes of the
// wall clock do not affect them. Its methods take the current time.
type uptimes struct {
	began time.Time
	// turnBegan is when the current event got its turn, in nanoseconds; 0 if there is none. last is
	// when the last one ended.
	turnBegan, last atomic.Int64
}

// start sets the time of the conductor's start. The node counts as idle for a long time.
func (u *uptimes) start(now time.Time) {
	u.began = now
	u.last.Store(math.MinInt64 / 2)
}

// nanoseconds returns the nanoseconds since the conductor's start.
func (u *uptimes) nanoseconds(now time.Time) int64 { return int64(now.Sub(u.began)) }

// begin notes that an event gets its turn, and end that its turn ends.
func (u *uptimes) begin(now time.Time) { u.turnBegan.Store(max(1, u.nanoseconds(now))) }

func (u *uptimes) end(now time.Time) {
	u.last.Store(u.nanoseconds(now))
	u.turnBegan.Store(0)
}

// currentTurn returns for how long the current event has had its turn; 0 if there is none.
func (u *uptimes) currentTurn(now time.Time) time.Duration {
	if s := u.turnBegan.Load(); s != 0 {
		return time.Duration(u.nanoseconds(now) - s)
	}
	return 0
}

// idle returns for how long no event has been handled.
func (u *uptimes) idle(now time.Time) time.Duration {
	if u.turnBegan.Load() != 0 {
		return 0
	}
	return time.Duration(u.nanoseconds(now) - u.last.Load())
}
