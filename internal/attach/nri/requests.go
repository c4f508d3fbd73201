package nri

import "sync"

// signal is raised once, for all who wait for it.
type signal struct {
	ch   chan struct{}
	once *sync.Once
}

func newSignal() signal { return signal{make(chan struct{}), &sync.Once{}} }

func (s signal) raise() { s.once.Do(func() { close(s.ch) }) }

// requests are the runtime's that are being answered.
type requests struct {
	idle signal // raised when the connection has ended and none is left

	mu       sync.Mutex
	running  int
	answered bool  // one was
	written  int64 // writes of the connection when the last one was
	ended    bool
}

// begin counts one in; it is false when the connection has ended.
func (r *requests) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return false
	}
	r.running++
	return true
}

// end counts one out, at so many writes of the connection.
func (r *requests) end(writes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
	r.answered, r.written = true, writes
	r.raise()
}

// finish lets no more begin.
func (r *requests) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	r.raise()
}

func (r *requests) raise() {
	if r.ended && r.running == 0 {
		r.idle.raise()
	}
}

// state reports whether one is being answered, whether one was, and at how many writes of the
// connection the last.
func (r *requests) state() (running, answered bool, written int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running > 0, r.answered, r.written
}
