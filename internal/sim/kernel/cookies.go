package kernel

import (
	"sync"
	"syscall"
)

// Cookies simulates the kernel's core scheduling cookies. Cookies are numbered 1, 2 and so on, in the order of their
// creation.
type Cookies struct {
	mu      sync.Mutex
	of      map[int]uint64 // the cookie of each thread
	created uint64         // the number of cookies created so far
	ended   map[int]bool   // the threads that have ended
}

// NewCookies returns a kernel in which no thread has a cookie.
func NewCookies() *Cookies { return &Cookies{of: map[int]uint64{}, ended: map[int]bool{}} }

// End ends a thread.
func (f *Cookies) End(thread int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.of, thread)
	f.ended[thread] = true
}

// Cookie returns a thread's cookie.
func (f *Cookies) Cookie(thread int) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended[thread] {
		return 0, syscall.ESRCH
	}
	return f.of[thread], nil
}

// Create gives a thread a new cookie.
func (f *Cookies) Create(thread int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended[thread] {
		return syscall.ESRCH
	}
	f.created++
	f.of[thread] = f.created
	return nil
}

// Share gives one thread's cookie to another.
func (f *Cookies) Share(from, to int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended[from] || f.ended[to] {
		return syscall.ESRCH
	}
	f.of[to] = f.of[from]
	return nil
}
