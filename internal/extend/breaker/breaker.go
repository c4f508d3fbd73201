// Package breaker is the circuit breaker of connections to other programs: after several calls in a row without an
// answer the agent does not call a program during a pause, so that its timeout does not delay every event.
package breaker

import "time"

const (
	// MaxFailures in a row open the breaker.
	MaxFailures = 3
	// MinPause is the first pause. Each pause is twice as long as the one before.
	MinPause = time.Second
	// MaxPause is the longest pause.
	MaxPause = 30 * time.Second
)

// Breaker is the breaker of one program. The zero value is closed: calls are made. It has no lock.
type Breaker struct {
	failures int
	until    time.Time // not called before then
	pause    time.Duration
	probing  bool // one call is testing whether the program works again
}

// Result is the result of a call.
type Result int

// The results.
const (
	NotCounted Result = iota // the caller ended the call
	Answered
	Missing // there was no answer
)

// Begin reports whether a call may be made now, otherwise how long the pause still is. End must follow a call.
func (b *Breaker) Begin(now time.Time) (wait time.Duration, ok bool) {
	if b.failures < MaxFailures {
		return 0, true
	}
	if now.Before(b.until) || b.probing {
		return max(b.until.Sub(now), 0), false
	}
	b.probing = true
	return 0, true
}

// End notes the result of a call.
func (b *Breaker) End(r Result, now time.Time) {
	b.probing = false
	switch r {
	case NotCounted:
	case Answered:
		b.failures, b.pause = 0, 0
	case Missing:
		if b.failures++; b.failures >= MaxFailures {
			b.pause = min(max(2*b.pause, MinPause), MaxPause)
			b.until = now.Add(b.pause)
		}
	}
}

// Open reports whether calls are not made now.
func (b *Breaker) Open(now time.Time) bool { return b.failures >= MaxFailures && now.Before(b.until) }

// Failing reports whether the last call had no answer.
func (b *Breaker) Failing() bool { return b.failures > 0 }
