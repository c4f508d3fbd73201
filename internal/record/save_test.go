package record_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/record"
)

// TestCheckpointSavedAgain: a checkpoint that could not be saved is saved again after growing pauses,
// without another change; also at a clean end.
func TestCheckpointSavedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cp := record.Open(nil, &sync.Mutex{}, slog.New(slog.DiscardHandler))
		start := time.Now()
		var tries []time.Duration
		var full atomic.Bool
		full.Store(true)
		save := func([]byte) error {
			tries = append(tries, time.Since(start).Truncate(time.Second))
			if full.Load() {
				return errors.New("no space left on device")
			}
			return nil
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- cp.Keep(ctx, save) }()
		cp.Note("c", lifecycle.Record{})
		time.Sleep(10 * time.Second)
		full.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(tries) != 5 || tries[4] != 15*time.Second {
			t.Errorf("tried after %v, want after 0, 1, 3, 7 and 15 s", tries)
		}
		full.Store(true)
		cp.Note("c", lifecycle.Record{})
		time.Sleep(time.Second)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		before := len(tries)
		full.Store(false)
		cp.Finish(save)
		cp.Finish(save)
		if len(tries) != before+1 {
			t.Errorf("a clean end tried %d times, want once", len(tries)-before)
		}
	})
}
