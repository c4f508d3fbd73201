package connect

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestAttempts: pauses double up to the bound and start again after an attempt that worked; an error is
// reported once; and Wake ends a pause.
func TestAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		wake := make(chan struct{}, 1)
		begun, n := time.Now(), 0
		var at []time.Duration
		var entered []string
		failed := 0
		Attempts{
			Backoff: Backoff{Min: time.Second, Max: 3 * time.Second}, Wake: wake,
			Enter:         func(state string, _ error) { entered = append(entered, state) },
			AdmitInterval: time.Minute, Admit: func() error {
				if time.Since(begun) == 0 {
					return errors.New("another agent decides")
				}
				return nil
			},
			Attempt: func(context.Context) (bool, error) {
				at = append(at, time.Since(begun))
				n++
				switch n {
				case 5:
					wake <- struct{}{}
				case 6:
					cancel()
				}
				return n == 4, errors.New("lost")
			},
			OnFailure: func(error) { failed++ },
		}.Run(ctx)
		if !slices.Equal(entered, []string{StateStandby, StateLost, StateLost, StateLost, StateLost, StateLost}) || failed != 2 || len(at) != 6 || at[0] != time.Minute {
			t.Fatalf("attempts at %v, states %v, %d new errors", at, entered, failed)
		}
		for i, most := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, time.Second} {
			if pause := at[i+1] - at[i]; pause < most/2 || pause > most {
				t.Errorf("pause %d is %v, want %v to %v", i, pause, most/2, most)
			}
		}
		if pause := at[5] - at[4]; pause != minPause {
			t.Errorf("woken after %v", pause)
		}
	})
}

// TestState: an error stays until the attachment works again.
func TestState(t *testing.T) {
	var s State
	log, broken := slog.New(slog.DiscardHandler), errors.New("broken")
	if now, err := s.Get(); now != StateIdle || err != nil {
		t.Errorf("at first %s, %v", now, err)
	}
	for _, c := range []struct {
		enter     string
		err, left error
	}{{"dialing", nil, nil}, {"lost", broken, broken}, {"dialing", nil, broken}, {StateSynchronised, nil, nil}} {
		left := s.Enter(log, "connection", c.enter, c.err)
		if now, err := s.Get(); now != c.enter || !errors.Is(err, c.left) || !errors.Is(left, c.left) {
			t.Errorf("%s: %s, %v and %v, want %v", c.enter, now, err, left, c.left)
		}
	}
}

// TestRecoverPanic: a panic is logged, and the agent continues.
func TestRecoverPanic(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	if RecoverPanic(log, "a call", func() { panic("no") }) || !RecoverPanic(log, "a call", func() {}) {
		t.Error("RecoverPanic does not distinguish a panic from a normal return")
	}
}
