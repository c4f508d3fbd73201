package follow_test

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/follow"
)

// TestNow: a signal makes the files be read at once, although nothing changed and the next recheck is much
// later.
func TestNow(t *testing.T) {
	now, looked, dir := make(chan os.Signal, 1), make(chan struct{}, 10), t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- follow.DirWatcher{
			QuietTime: time.Hour, MaxWait: time.Hour, Recheck: time.Hour, Signals: now,
			Dirs: func() []string { return []string{dir} }, Read: func() { looked <- struct{}{} },
		}.Run(ctx)
	}()
	await := func(what string) {
		t.Helper()
		select {
		case <-looked:
		case <-time.After(time.Minute):
			t.Fatalf("the files were not read %s", what)
		}
	}
	await("at the start")
	now <- syscall.SIGHUP
	await("at the signal")
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
