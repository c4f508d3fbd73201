package bypass

import (
	"context"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/sleep"
)

// tasks runs the goroutines of one connection.
type tasks struct {
	ctx  context.Context         // ends with the connection
	fail context.CancelCauseFunc // ends the connection and ctx, with an error as the cause

	mu   sync.Mutex     // keeps run from starting a goroutine while stop waits
	work sync.WaitGroup // counts the running goroutines
}

func newTasks(ctx context.Context) *tasks {
	t := &tasks{}
	t.ctx, t.fail = context.WithCancelCause(ctx)
	return t
}

// run runs f on a new goroutine, unless the connection has ended. f must return soon after the end of ctx.
func (t *tasks) run(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() == nil {
		t.work.Go(f)
	}
}

// runAfter runs f on a new goroutine after the duration d, unless the connection ends before.
func (t *tasks) runAfter(d time.Duration, f func()) {
	t.run(func() {
		if sleep.For(t.ctx, d) {
			f()
		}
	})
}

// stop ends ctx and waits until all goroutines have ended. closeConn closes the connection, so that the calls that wait
// for the runtime return.
func (t *tasks) stop(closeConn func()) {
	t.mu.Lock()
	t.fail(nil)
	t.mu.Unlock()
	closeConn()
	t.work.Wait()
}
