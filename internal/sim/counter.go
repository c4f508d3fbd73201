package sim

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// syncCounter counts synchronisations of plugins and lets goroutines wait for a count. The zero value counts from 0.
type syncCounter struct {
	mu   sync.Mutex
	n    int           // the number of synchronisations so far
	more chan struct{} // closed when n grows; nil if no goroutine waits
}

func (c *syncCounter) increment() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	if c.more != nil {
		close(c.more)
		c.more = nil
	}
}

func (c *syncCounter) count() int {
	n, _ := c.next()
	return n
}

// next returns the count, and a channel that is closed when the count grows.
func (c *syncCounter) next() (int, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.more == nil {
		c.more = make(chan struct{})
	}
	return c.n, c.more
}

// await waits until the count is at least want. It returns an error if that takes longer than patience.
func (c *syncCounter) await(ctx context.Context, want int, patience time.Duration) error {
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
