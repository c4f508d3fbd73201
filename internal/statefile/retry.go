package statefile

import (
	"errors"
	"io/fs"
	"time"
)

// The shortest and the longest pause between a failed save and the next try.
const (
	firstPause = time.Second
	maxPause   = time.Minute
)

// Retry schedules the next try after a failed save. After the first failure the pause is a second. After each further
// failure in a row it is twice as long, but at most a minute. The zero value means that no save has failed. It is not
// safe for concurrent use.
type Retry struct {
	pause   time.Duration // the pause after the last save; 0 if the last save succeeded
	nextTry time.Time     // the end of the pause
}

// SetResult stores the result of a save. The parameter now is the time of the save, with a monotonic clock reading.
func (r *Retry) SetResult(now time.Time, err error) {
	if err == nil {
		*r = Retry{}
		return
	}
	r.pause = min(max(2*r.pause, firstPause), maxPause)
	r.nextTry = now.Add(r.pause)
}

// TooEarly reports whether the last save failed and the pause after it has not ended.
func (r *Retry) TooEarly(now time.Time) bool { return r.pause > 0 && now.Before(r.nextTry) }

// Failed reports whether the last save failed.
func (r *Retry) Failed() bool { return r.pause > 0 }

// WaitTime returns the time until the next try.
func (r *Retry) WaitTime(now time.Time) time.Duration { return max(r.nextTry.Sub(now), 0) }

// A failed read is repeated after short pauses. The reason is that the caller renames a file that it cannot read, and a
// short failure of the disk must not cause a rename.
const (
	readTries = 5
	readPause = 10 * time.Millisecond // the first pause; each further pause is twice as long
)

// readWithRetries calls read up to readTries times, until it succeeds. It does not repeat a read of a missing or
// untrusted file.
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
