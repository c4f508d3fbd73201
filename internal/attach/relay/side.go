package relay

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// handsOverWithin is how long a write may take once the connection is drained.
const handsOverWithin = time.Second

// side is one end of a relayed connection. Frames are written whole, under the
// mutex, since several goroutines write.
type side struct {
	net.Conn

	in     *reader // finds the frames it sends
	blocks *blocks // reads the header blocks it sends
	// fail is called once a write has failed: half a frame may be out, so that nothing
	// can follow it.
	fail func(err error)

	mu   sync.Mutex
	room []byte // for one frame of a held call; guarded by mu

	limiting sync.Mutex // guards within, and that no write sets a deadline of before
	within   time.Duration
}

// Write writes within bounds.
func (s *side) Write(b []byte) (int, error) {
	s.limiting.Lock()
	_ = s.SetWriteDeadline(time.Now().Add(s.within)) // of a closed connection, which the write finds
	s.limiting.Unlock()
	n, err := s.Conn.Write(b)
	if err != nil {
		err = fmt.Errorf("write to it: %w", err)
		s.fail(err)
	}
	return n, err
}

// hurry bounds the write under way, and all that follow.
func (s *side) hurry() {
	s.limiting.Lock()
	defer s.limiting.Unlock()
	s.within = min(s.within, handsOverWithin)
	_ = s.SetWriteDeadline(time.Now().Add(s.within)) // of a closed connection, where nobody writes
}

// write writes whole frames.
func (s *side) write(b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writeLocked(b)
}

func (s *side) writeLocked(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	_, err := s.Write(b)
	return err
}
