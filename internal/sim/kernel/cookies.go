package kernel

import (
	"sync"
	"syscall"
)

// Cookies simulates the kernel's core scheduling cookies. Cookies are numbered 1, 2 and so on, in the order of their
// creation.
type Cookies struct {
	mu           sync.Mutex
	cookieOf     map[int]uint64 // the cookie of each thread
	created      uint64         // the number of cookies created so far
	endedThreads map[int]bool   // the threads that have ended
}

// NewCookies returns a simulated kernel in which no thread has a cookie.
func NewCookies() *Cookies { return &Cookies{cookieOf: map[int]uint64{}, endedThreads: map[int]bool{}} }

// End ends a thread. All later calls for this thread return ESRCH.
func (f *Cookies) End(thread int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.cookieOf, thread)
	f.endedThreads[thread] = true
}

// Cookie returns a thread's cookie; 0 if it has none.
func (f *Cookies) Cookie(thread int) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.endedThreads[thread] {
		return 0, syscall.ESRCH
	}
	return f.cookieOf[thread], nil
}

// Create creates a cookie and assigns it to a thread.
func (f *Cookies) Create(thread int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.endedThreads[thread] {
		return syscall.ESRCH
	}
	f.created++
	f.cookieOf[thread] = f.created
	return nil
}

// Share copies the cookie of the thread source to the thread target.
func (f *Cookies) Share(source, target int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.endedThreads[source] || f.endedThreads[target] {
		return syscall.ESRCH
	}
	f.cookieOf[target] = f.cookieOf[source]
	return nil
}
