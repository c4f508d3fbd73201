package relay

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// drainTimeout is how long a write may take while the relay closes the connection by GOAWAY.
const drainTimeout = time.Second

// endpoint is one end of a relayed connection. Several goroutines write to an endpoint, so each writes whole frames
// under the mutex.
type endpoint struct {
	net.Conn

	reader *reader // reads the frames that this end sends
	blocks *blocks // decodes the header blocks that this end sends
	// onWriteError is called after a failed write. Nothing more can then be sent to this end, because it may have
	// received a part of a frame.
	onWriteError func(err error)

	mu  sync.Mutex // held during each write
	buf []byte     // for one frame of a held call; guarded by mu

	// timeoutMu guards writeTimeout. It is also held while a deadline is set, so that no deadline uses an old
	// writeTimeout.
	timeoutMu    sync.Mutex
	writeTimeout time.Duration // how long a write may take
}

// Write writes with a deadline.
func (s *endpoint) Write(b []byte) (int, error) {
	s.timeoutMu.Lock()
	_ = s.SetWriteDeadline(time.Now().Add(s.writeTimeout)) // fails only on a closed connection, which the write then reports
	s.timeoutMu.Unlock()
	n, err := s.Conn.Write(b)
	if err != nil {
		err = fmt.Errorf("write: %w", err)
		s.onWriteError(err)
	}
	return n, err
}

// shortenTimeout limits the current write and all later writes to drainTimeout.
func (s *endpoint) shortenTimeout() {
	s.timeoutMu.Lock()
	defer s.timeoutMu.Unlock()
	s.writeTimeout = min(s.writeTimeout, drainTimeout)
	_ = s.SetWriteDeadline(time.Now().Add(s.writeTimeout)) // fails only on a closed connection, to which nothing is written
}

// write writes the whole frames in b.
func (s *endpoint) write(b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writeLocked(b)
}

// writeLocked writes the whole frames in b. The mutex is held.
func (s *endpoint) writeLocked(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	_, err := s.Write(b)
	return err
}
