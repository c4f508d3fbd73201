package main

import (
	"slices"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/report/api"
)

func TestSince(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string][]uint64{"": {1, 2, 3}, "2": {1, 2, 3}, "5m": {2, 3}, "30s": {3}} {
		var s sinceFlag
		if text != "" {
			if err := s.Set(text); err != nil {
				t.Fatal(err)
			}
		}
		var got []uint64
		show := s.filter(now, func(e api.Event) error { got = append(got, e.Seq); return nil })
		for seq, ago := range []time.Duration{time.Hour, 5 * time.Minute, time.Second} {
			if err := show(api.Event{Seq: uint64(seq + 1), Time: now.Add(-ago)}); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, want) { // the agent, not the filter, selects events by number
			t.Errorf("--since %q shows %v, want %v", text, got, want)
		}
	}
	for _, bad := range []string{"x", "-1", "0s", "-5m", "5", ""} {
		var s sinceFlag
		if err := s.Set(bad); (err == nil) != (bad == "5") {
			t.Errorf("--since %q: %v", bad, err)
		}
	}
}
