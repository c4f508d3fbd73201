package podspec

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// fullDisk fails all saves until it has room.
type fullDisk struct {
	room         atomic.Bool
	tries, saved atomic.Int64
}

func (d *fullDisk) save([]byte) error {
	d.tries.Add(1)
	if !d.room.Load() {
		return errors.New("no space left on device")
	}
	d.saved.Add(1)
	return nil
}

// TestSavedAgain: pod specs and grants that could not be saved are saved again after growing pauses,
// although nothing changes; also at a clean end.
func TestSavedAgain(t *testing.T) {
	for name, start := range map[string]func(d *fullDisk) (run func(context.Context) error, changed func()){
		"specs": func(d *fullDisk) (func(context.Context) error, func()) {
			l := New(Options{Save: d.save})
			return l.Run, func() {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.dirty = true
			}
		},
		"grants": func(d *fullDisk) (func(context.Context) error, func()) {
			g := NewGrants(GrantsOptions{Socket: filepath.Join(t.TempDir(), "nobody"), Save: d.save})
			return g.Run, func() {
				g.mu.Lock()
				g.dirty = true
				g.mu.Unlock()
				g.Invalidate(&lifecycle.Pod{UID: "u", Name: "p", Namespace: "n"})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { checkSavedAgain(t, start) })
		})
	}
}

func checkSavedAgain(t *testing.T, start func(*fullDisk) (func(context.Context) error, func())) {
	t.Helper()
	d := &fullDisk{}
	run, changed := start(d)
	changed()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- run(ctx) }()
	time.Sleep(30*time.Second + time.Millisecond)
	if tries := d.tries.Load(); tries < 3 || tries > 6 {
		t.Errorf("a full disk was tried %d times in half a minute", tries)
	}
	d.room.Store(true)
	time.Sleep(2 * time.Minute)
	if saved := d.saved.Load(); saved != 1 {
		t.Errorf("saved %d times after the disk had room, want once", saved)
	}
	d.room.Store(false)
	changed()
	time.Sleep(3 * time.Second)
	d.room.Store(true)
	stop()
	if err := <-ended; err != nil || d.saved.Load() != 2 {
		t.Errorf("at a clean end: %v, saved %d times, want twice", err, d.saved.Load())
	}
}
