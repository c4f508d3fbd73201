// Package workerpool runs short functions on goroutines that it reuses. The stack of a reused goroutine has already
// grown. This saves time, because growing a stack takes half as long as one of the agent's decisions about a container.
package workerpool

import "sync"

// maxIdle is how many idle goroutines a pool keeps.
const maxIdle = 16

// Pool runs functions concurrently. Its zero value is ready for use.
type Pool struct {
	work       sync.WaitGroup // counts the functions that have not returned
	goroutines sync.WaitGroup // counts the goroutines, idle ones too

	mu   sync.Mutex    // guards idle
	idle []chan func() // the channels of idle goroutines, the last used goroutine last
}

// Go runs f on an idle goroutine, or on a new one. It never blocks.
func (p *Pool) Go(f func()) {
	p.work.Add(1)
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		next := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		next <- f // never blocks: capacity 1
		return
	}
	p.mu.Unlock()
	p.goroutines.Go(func() { p.serve(f) })
}

// serve runs f, and then the functions that it receives while its goroutine is idle.
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

// run runs one function. It reports whether the goroutine waits for another function.
func (p *Pool) run(f func(), next chan func()) (stays bool) {
	defer p.work.Done()
	f()
	p.mu.Lock()
	defer p.mu.Unlock()
	if stays = len(p.idle) < maxIdle; stays {
		p.idle = append(p.idle, next)
	}
	return stays
}

// Wait returns when all functions have returned and no goroutine is left. During Wait, only these functions may
// call Go.
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

// GrowStack grows the stack of a new goroutine in one step. A stack starts small, and the Go runtime would otherwise
// double and copy it several times. A decision of a placement policy uses between 16 and 32 KiB of stack, because CPU
// sets are arrays on the stack.
//
//go:noinline
func GrowStack() {
	var room [24 << 10]byte
	touch(&room)
}

// touch writes to the array, so that the compiler cannot remove it.
//
//go:noinline
func touch(room *[24 << 10]byte) { room[0] = 1 }
