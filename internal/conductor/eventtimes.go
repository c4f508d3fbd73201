package conductor

import (
	"math"
	"sync/atomic"
	"time"
)

// eventTimes has the start and end times of events, relative to the conductor's start, so that changes of the
// wall clock do not affect them. The parameter of its methods is the current time.
type eventTimes struct {
	zeroTime time.Time // the conductor's start
	// eventStart is when the conductor began to handle the current event; 0 if there is no event. lastEventEnd is
	// when the last event ended. Both count nanoseconds since zeroTime.
	eventStart, lastEventEnd atomic.Int64
}

// start sets the time of the conductor's start. It also sets the end of the last event to a time long ago, so that the
// node counts as idle.
func (u *eventTimes) start(now time.Time) {
	u.zeroTime = now
	u.lastEventEnd.Store(math.MinInt64 / 2)
}

// nanosecondsSinceStart returns the nanoseconds since the conductor's start.
func (u *eventTimes) nanosecondsSinceStart(now time.Time) int64 { return int64(now.Sub(u.zeroTime)) }

// begin notes that the conductor begins to handle an event.
func (u *eventTimes) begin(now time.Time) { u.eventStart.Store(max(1, u.nanosecondsSinceStart(now))) }

// end notes that the current event has ended.
func (u *eventTimes) end(now time.Time) {
	u.lastEventEnd.Store(u.nanosecondsSinceStart(now))
	u.eventStart.Store(0)
}

// currentEventDuration returns how long the conductor has been handling the current event; 0 if there is none.
func (u *eventTimes) currentEventDuration(now time.Time) time.Duration {
	if s := u.eventStart.Load(); s != 0 {
		return time.Duration(u.nanosecondsSinceStart(now) - s)
	}
	return 0
}

// idleDuration returns how long ago the last event ended; 0 while an event is being handled.
func (u *eventTimes) idleDuration(now time.Time) time.Duration {
	if u.eventStart.Load() != 0 {
		return 0
	}
	return time.Duration(u.nanosecondsSinceStart(now) - u.lastEventEnd.Load())
}
