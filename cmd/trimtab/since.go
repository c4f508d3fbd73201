package main

import (
	"errors"
	"strconv"
	"time"

	"github.com/trimtab/trimtab/internal/report/api"
)

// since is the value of events --since: the number of an event, or a duration before now.
type since struct {
	text string
	seq  uint64
	ago  time.Duration
}

// String returns what the user wrote.
func (s *since) String() string { return s.text }

// Type names the value in the help of the flag.
func (s *since) Type() string { return "number|duration" }

// Set reads a number, or a duration such as 5m.
func (s *since) Set(text string) error {
	seq, err := strconv.ParseUint(text, 10, 64)
	if err == nil {
		*s = since{text: text, seq: seq}
		return nil
	}
	ago, err := time.ParseDuration(text)
	if err != nil || ago <= 0 {
		return errors.New("want the number of an event, or a duration such as 90s, 5m or 2h")
	}
	*s = since{text: text, ago: ago}
	return nil
}

// after filters out events that are too old.
func (s *since) after(now time.Time, show func(api.Event) error) func(api.Event) error {
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
