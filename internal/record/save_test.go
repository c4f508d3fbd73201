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
		cp := record.NewCheckpoint(nil, &sync.Mutex{}, slog.New(slog.DiscardHandler))
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
		go func() { ended <- cp.SaveChanges(ctx, save) }()
		cp.SetRecord("c", lifecycle.Record{})
		time.Sleep(10 * time.Second)
		full.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(tries) != 5 || tries[4] != 15*time.Second {
			t.Errorf("tried after %v, want after 0, 1, 3, 7 and 15 s", tries)
		}
		full.Store(true)
		cp.SetRecord("c", lifecycle.Record{})
		time.Sleep(time.Second)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		before := len(tries)
		full.Store(false)
		cp.SaveNow(save)
		cp.SaveNow(save)
		if len(tries) != before+1 {
			t.Errorf("a clean end tried %d times, want once", len(tries)-before)
		}
	})
}

// TestResizeSavedAtOnce: the checkpoint is saved at once when a resize changes which CPUs a container owns,
// and a moment later for other changes. After a failed save, a resize does not shorten the pause.
func TestResizeSavedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cp := record.NewCheckpoint(nil, &sync.Mutex{}, slog.New(slog.DiscardHandler))
		var saves atomic.Int32
		var fails atomic.Bool
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- cp.SaveChanges(ctx, func([]byte) error {
				saves.Add(1)
				if fails.Load() {
					return errors.New("no space left on device")
				}
				return nil
			})
		}()
		expect := func(what string, want int32) {
			t.Helper()
			synctest.Wait()
			if is := saves.Load(); is != want {
				t.Errorf("%s: saved %d times, want %d", what, is, want)
			}
		}
		cp.SetResizedRecord("c", lifecycle.Record{CPUs: "0-3"})
		expect("a container grew", 1)
		time.Sleep(time.Second)
		expect("nothing more changed", 1)
		cp.SetRecord("other", lifecycle.Record{CPUs: "4"})
		cp.SetResizedRecord("c", lifecycle.Record{CPUs: "0-3", Generation: 2})
		expect("it has the same CPUs", 1)
		time.Sleep(time.Second)
		expect("a moment later", 2)
		fails.Store(true)
		cp.SetResizedRecord("c", lifecycle.Record{CPUs: "0-1"})
		expect("it shrank", 3)
		cp.SetResizedRecord("c", lifecycle.Record{CPUs: "0"})
		expect("the disk is full", 3)
		fails.Store(false)
		time.Sleep(time.Minute)
		expect("the disk has space again", 4)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestAwaitSaved: a caller waits until a container's last note is saved: not for other containers, not for a full
// disk, and not if nothing saves.
func TestAwaitSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cp := record.NewCheckpoint(nil, &sync.Mutex{}, slog.New(slog.DiscardHandler))
		cp.SetRecord("c", lifecycle.Record{})
		cp.AwaitSaved(t.Context(), "c") // nothing saves
		var saved, began atomic.Int32
		var fails atomic.Bool
		writing := make(chan struct{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- cp.SaveChanges(ctx, func([]byte) error {
				began.Add(1)
				<-writing
				if fails.Load() {
					return errors.New("no space left on device")
				}
				saved.Add(1)
				return nil
			})
		}()
		synctest.Wait()
		await := func(id string) (done *atomic.Bool) {
			done = new(atomic.Bool)
			go func() {
				cp.AwaitSaved(t.Context(), id)
				done.Store(true)
			}()
			synctest.Wait()
			return done
		}
		first := await("c")
		if first.Load() || began.Load() != 1 {
			t.Errorf("returned: %v, began to save %d times at once, want once", first.Load(), began.Load())
		}
		cp.SetRecord("d", lifecycle.Record{}) // while the file is written, without it
		second, other := await("d"), await("unknown")
		if second.Load() || !other.Load() {
			t.Error("want to wait for a noted container, and for no other")
		}
		writing <- struct{}{}
		synctest.Wait()
		if !first.Load() || second.Load() {
			t.Errorf("after the first save: %v, %v, want true, false", first.Load(), second.Load())
		}
		writing <- struct{}{}
		synctest.Wait()
		if !second.Load() || saved.Load() != 2 {
			t.Errorf("after the second save: %v, saved %d times", second.Load(), saved.Load())
		}
		fails.Store(true)
		cp.SetRecord("c", lifecycle.Record{CPUs: "1"})
		third := await("c")
		writing <- struct{}{}
		synctest.Wait()
		if !third.Load() || !await("c").Load() {
			t.Error("a full disk holds up the runtime's update")
		}
		close(writing)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
