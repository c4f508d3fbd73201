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
	fail context.CancelCauseFunc // ends the connection for a reason

	mu   sync.Mutex     // keeps run from starting a goroutine while stop waits
	work sync.WaitGroup // counts the running goroutines
}

func newTasks(ctx context.Context) *tasks {
	t := &tasks{}
	t.ctx, t.fail = context.WithCancelCause(ctx)
	return t
}

// run runs f on a goroutine that ends with the connection.
func (t *tasks) run(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() == nil {
		t.work.Go(f)
	}
}

// runAfter runs f after the duration d, unless the connection has ended.
func (t *tasks) runAfter(d time.Duration, f func()) {
	t.run(func() {
		if sleep.For(t.ctx, d) {
			f()
		}
	})
}

// stop ends all goroutines and waits for them. The function closing must end the goroutines that block on the
// connection.
func (t *tasks) stop(closing func()) {
	t.mu.Lock()
	t.fail(nil)
	t.mu.Unlock()
	closing()
	t.work.Wait()
}
