// Package workerpool runs short functions on goroutines that stay for the next ones: a goroutine's stack has grown by then,
// which costs as much as half of what a call is decided with.
package workerpool

import "sync"

// most is how many goroutines stay with nothing to do.
const most = 16

// Pool runs functions beside one another. Its zero value is ready for use.
type Pool struct {
	work, goroutines sync.WaitGroup

	mu   sync.Mutex
	idle []chan func() // the last one worked last
}

// Go runs f on a goroutine that is idle, or on another one. It never waits.
func (p *Pool) Go(f func()) {
	p.work.Add(1)
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		next := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		next <- f // it has room for one
		return
	}
	p.mu.Unlock()
	p.goroutines.Go(func() { p.serve(f) })
}

// serve runs one function after another.
func (p *Pool) serve(f func()) {
	next := make(chan func(), 1)
	for f != nil {
		stays := p.run(f, next)
		if !stays {
			return
		}
		f = <-next
	}
}

// run runs one function. It reports whether the goroutine stays for another.
func (p *Pool) run(f func(), next chan func()) (stays bool) {
	defer p.work.Done()
	f()
	p.mu.Lock()
	defer p.mu.Unlock()
	if stays = len(p.idle) < most; stays {
		p.idle = append(p.idle, next)
	}
	return stays
}

// Wait returns when all functions have returned and no goroutine is left. While it waits, only these functions may give
// the pool others.
func (p *Pool) Wait() {
	p.work.Wait()
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, next := range idle {
		next <- nil
	}
	p.goroutines.Wait()
}
