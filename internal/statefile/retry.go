package statefile

import (
	"errors"
	"io/fs"
	"time"
)

// The shortest and the longest pause before a failed save is tried again.
const (
	firstPause = time.Second
	maxPause   = time.Minute
)

// Retry schedules the next try after a failed save: after a second, then after twice as long
// each time, and at most a minute. The zero value has no failure. Only one goroutine may use
// it.
type Retry struct {
	pause time.Duration
	at    time.Time
}

// Note notes the result of a save at now, which is monotonic.
func (r *Retry) Note(now time.Time, err error) {
	if err == nil {
		*r = Retry{}
		return
	}
	r.pause = min(max(2*r.pause, firstPause), maxPause)
	r.at = now.Add(r.pause)
}

// Resting reports whether a save failed and it is too early to try again.
func (r *Retry) Resting(now time.Time) bool { return r.pause > 0 && now.Before(r.at) }

// Failed reports whether the last save failed.
func (r *Retry) Failed() bool { return r.pause > 0 }

// Wait returns the time until the next try.
func (r *Retry) Wait(now time.Time) time.Duration { return max(r.at.Sub(now), 0) }

// A failed read is tried again at once. A file that cannot be read is renamed, and a short
// failure of the disk must not cause that.
const (
	readTries = 5
	readPause = 10 * time.Millisecond // the first pause
)

// readWithRetries reads until that succeeds, or fails for a reason that another try does not
// change.
func readWithRetries(read func() error) error {
	pause := readPause
	for try := 1; ; try++ {
		err := read()
		if err == nil || try == readTries || errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrUntrusted) {
			return err
		}
		<-time.NewTimer(pause).C
		pause *= 2
	}
}
