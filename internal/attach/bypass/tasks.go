package bypass

import (
	"context"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/sleep"
)

// tasks are the goroutines of one connection.
type tasks struct {
	ctx    context.Context // ends with the connection
	cancel context.CancelFunc
	failed chan error // the reason for which the connection must end

	mu    sync.Mutex
	ended bool
	work  sync.WaitGroup
}

func newTasks(ctx context.Context) *tasks {
	t := &tasks{failed: make(chan error, 1)}
	t.ctx, t.cancel = context.WithCancel(ctx)
	return t
}

// run runs f on a goroutine that ends with the connection.
func (t *tasks) run(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
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

// fail ends the connection.
func (t *tasks) fail(err error) {
	select {
	case t.failed <- err:
	default:
	}
}

// hasEnded reports whether the connection has ended.
func (t *tasks) hasEnded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

// end ends all goroutines and waits for them; closing ends those that block on the
// connection.
func (t *tasks) end(closing func()) {
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	t.cancel()
	closing()
	t.work.Wait()
}
