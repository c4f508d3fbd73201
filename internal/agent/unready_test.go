package agent

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestUnready: the agent logs a warning soon after the start, again after five minutes, and a message when
// it is ready.
func TestUnready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("no runtime")
		start := time.Now()
		var at []time.Duration
		over := 0
		var ready atomic.Bool
		u := (&Agent{}).newReadinessWatcher()
		u.ready = func() error {
			if ready.Load() {
				return nil
			}
			return why
		}
		u.warn = func(reason error) {
			if !errors.Is(reason, why) {
				t.Errorf("warned of %v", reason)
			}
			at = append(at, time.Since(start))
		}
		u.onReady = func() { over++ }
		ctx, cancel := context.WithCancel(t.Context())
		go u.run(ctx)
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if len(at) != 3 || at[0] != 5*time.Second || at[1] != at[0]+5*time.Minute || at[2] != at[1]+5*time.Minute {
			t.Errorf("warnings after %v", at)
		}
		ready.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if over != 1 || len(at) != 3 {
			t.Errorf("the end was reported %d times, warnings after %v", over, at)
		}
		cancel()
		synctest.Wait()
	})
}
