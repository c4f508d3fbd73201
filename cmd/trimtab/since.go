package main

import (
	"errors"
	"strconv"
	"time"

	"github.com/trimtab/trimtab/internal/report/api"
)

// sinceFlag is the value of the flag --since of the command events: the number of an event, or a duration before now.
type sinceFlag struct {
	text string        // what the user wrote
	seq  uint64        // the number of an event; 0 if the user wrote a duration
	ago  time.Duration // 0 if the user wrote a number
}

// String returns what the user wrote.
func (s *sinceFlag) String() string { return s.text }

// Type returns the name of the value in the help of the flag.
func (s *sinceFlag) Type() string { return "number|duration" }

// Set parses the number of an event, or a duration such as 5m.
func (s *sinceFlag) Set(text string) error {
	seq, err := strconv.ParseUint(text, 10, 64)
	if err == nil {
		*s = sinceFlag{text: text, seq: seq}
		return nil
	}
	ago, err := time.ParseDuration(text)
	if err != nil || ago <= 0 {
		return errors.New("want the number of an event, or a duration such as 90s, 5m or 2h")
	}
	*s = sinceFlag{text: text, ago: ago}
	return nil
}

// filter returns a function that calls show for each event that is at most s.ago older than now. If s.ago is 0, filter
// returns show itself.
func (s *sinceFlag) filter(now time.Time, show func(api.Event) error) func(api.Event) error {
	if s.ago == 0 {
		return show
	}
	from := now.Add(-s.ago)
	return func(e api.Event) error {
		if e.Time.Before(from) {
			return nil
		}
		return show(e)
	}
}
