package nri

import "sync"

// signal is an event that happens once. raise closes ch, which wakes all goroutines that wait on it.
type signal struct {
	ch   chan struct{}
	once *sync.Once
}

func newSignal() signal { return signal{make(chan struct{}), &sync.Once{}} }

// raise closes ch. Only the first call has an effect.
func (s signal) raise() { s.once.Do(func() { close(s.ch) }) }

// requests counts the runtime's requests that are not answered yet.
type requests struct {
	idle signal // raised when the connection has ended and no request is left

	mu             sync.Mutex // guards the fields below
	running        int        // number of requests that are not answered yet
	answered       bool       // a request was answered
	writesAtAnswer int64      // number of writes on the connection when the last request was answered
	ended          bool       // the connection has ended
}

// begin counts a request that starts. It returns false if the connection has ended.
func (r *requests) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return false
	}
	r.running++
	return true
}

// end counts a request that has been answered. The parameter writes is the number of writes on the connection so far.
func (r *requests) end(writes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
	r.answered, r.writesAtAnswer = true, writes
	r.raiseIfIdle()
}

// finish refuses all further requests.
func (r *requests) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	r.raiseIfIdle()
}

// raiseIfIdle raises idle if the connection has ended and no request is left. The caller holds the lock.
func (r *requests) raiseIfIdle() {
	if r.ended && r.running == 0 {
		r.idle.raise()
	}
}

// state reports whether a request is not answered yet, whether any request was answered, and the connection's number of
// writes when the last request was answered.
func (r *requests) state() (running, answered bool, written int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running > 0, r.answered, r.writesAtAnswer
}
