package sim

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// counter counts synchronisations of plugins and lets goroutines wait for a count. The zero value counts from 0.
type counter struct {
	mu   sync.Mutex
	n    int
	more chan struct{} // closed at the next count; nil without waiters
}

func (c *counter) add() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	if c.more != nil {
		close(c.more)
		c.more = nil
	}
}

func (c *counter) count() int {
	n, _ := c.next()
	return n
}

func (c *counter) next() (int, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.more == nil {
		c.more = make(chan struct{})
	}
	return c.n, c.more
}

// await waits until the count has reached want. It returns an error after patience.
func (c *counter) await(ctx context.Context, want int, patience time.Duration) error {
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		n, more := c.next()
		if n >= want {
			return nil
		}
		select {
		case <-more:
		case <-late.C:
			return fmt.Errorf("no plugin was synchronised within %s", patience)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
