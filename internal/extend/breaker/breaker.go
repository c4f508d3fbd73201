// Package breaker has the circuit breaker for calls to other programs. After several calls in a row without an answer,
// the agent does not call the program for some time. So a program that hangs does not delay every event.
package breaker

import "time"

const (
	// MaxFailures is the number of calls in a row without an answer after which the breaker opens: it blocks calls for
	// a pause.
	MaxFailures = 3
	// MinPause is the duration of the first pause. If the program still does not answer after a pause, the next pause
	// is twice as long.
	MinPause = time.Second
	// MaxPause is the longest pause.
	MaxPause = 30 * time.Second
)

// Breaker is the circuit breaker for calls to one program. The zero value allows calls. Two goroutines must not call
// methods of a Breaker at the same time.
type Breaker struct {
	failures  int           // calls in a row without an answer
	openUntil time.Time     // the end of the pause
	pause     time.Duration // the duration of the last pause; 0 after an answer
	probing   bool          // a call runs that tests whether the program answers again
}

// Result is the result of a call.
type Result int

// The results of a call.
const (
	NotCounted Result = iota // the caller cancelled the call, so it does not count
	Answered                 // the program answered, possibly with an error
	NoAnswer                 // the program did not answer
)

// Begin begins a call if a call is allowed now; the result ok reports whether it is. If it is not allowed, the result
// wait is the rest of the pause, or 0 while another call tests whether the program answers again. After an allowed
// call, the caller must call End.
func (b *Breaker) Begin(now time.Time) (wait time.Duration, ok bool) {
	if b.failures < MaxFailures {
		return 0, true
	}
	if now.Before(b.openUntil) || b.probing {
		return max(b.openUntil.Sub(now), 0), false
	}
	b.probing = true
	return 0, true
}

// End records the result of a call that Begin allowed.
func (b *Breaker) End(r Result, now time.Time) {
	b.probing = false
	switch r {
	case NotCounted:
	case Answered:
		b.failures, b.pause = 0, 0
	case NoAnswer:
		if b.failures++; b.failures >= MaxFailures {
			b.pause = min(max(2*b.pause, MinPause), MaxPause)
			b.openUntil = now.Add(b.pause)
		}
	}
}

// IsOpen reports whether the circuit breaker is in a pause, in which it blocks calls.
func (b *Breaker) IsOpen(now time.Time) bool {
	return b.failures >= MaxFailures && now.Before(b.openUntil)
}

// Failing reports whether the last counted call had no answer.
func (b *Breaker) Failing() bool { return b.failures > 0 }
