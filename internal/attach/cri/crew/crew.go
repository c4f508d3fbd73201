// Package crew runs short functions on goroutines that stay for the next ones: a goroutine's stack has grown by then,
// which costs as much as half of what a call is decided with.
package crew

import "sync"

// most is how many goroutines stay with nothing to do.
const most = 16

// Crew runs functions beside one another. Its zero value is ready for use.
type Crew struct {
	work, hands sync.WaitGroup

	mu   sync.Mutex
	idle []chan func() // the one that worked last is the last
}

// Go runs f on a goroutine that is idle, or on another one. It never waits.
func (c *Crew) Go(f func()) {
	c.work.Add(1)
	c.mu.Lock()
	if n := len(c.idle); n > 0 {
		next := c.idle[n-1]
		c.idle = c.idle[:n-1]
		c.mu.Unlock()
		next <- f // it has room for one
		return
	}
	c.mu.Unlock()
	c.hands.Go(func() { c.serve(f) })
}

// serve runs one function after another.
func (c *Crew) serve(f func()) {
	next := make(chan func(), 1)
	for f != nil {
		stays := c.run(f, next)
		if !stays {
			return
		}
		f = <-next
	}
}

// run runs one function. It reports whether the goroutine stays for another.
func (c *Crew) run(f func(), next chan func()) (stays bool) {
	defer c.work.Done()
	f()
	c.mu.Lock()
	defer c.mu.Unlock()
	if stays = len(c.idle) < most; stays {
		c.idle = append(c.idle, next)
	}
	return stays
}

// Wait returns when all functions have returned and no goroutine is left. No other may be given meanwhile but by these
// functions.
func (c *Crew) Wait() {
	c.work.Wait()
	c.mu.Lock()
	idle := c.idle
	c.idle = nil
	c.mu.Unlock()
	for _, next := range idle {
		next <- nil
	}
	c.hands.Wait()
}
