package relay

import "time"

// The ends of a stream, as bits.
const (
	callerEnd = 1 << iota
	backendEnd
	bothEnds = callerEnd | backendEnd
)

// streams are those that are open, with the ends that have said their last.
type streams struct {
	open map[uint32]uint8
	// since is when the last one closed, or the connection began.
	since time.Time
	// leaving: the backend has said that it deals with none above most.
	leaving bool
	most    uint32
	// refused are those beyond maxStreams that the caller may still send for.
	refused []uint32
}

// end notes that an end has said its last.
func (s *streams) end(stream uint32, end uint8) {
	ends, ok := s.open[stream]
	switch {
	case !ok:
	case ends|end == bothEnds:
		s.close(stream)
	default:
		s.open[stream] = ends | end
	}
}

// close forgets a stream.
func (s *streams) close(stream uint32) {
	if _, ok := s.open[stream]; !ok {
		return
	}
	delete(s.open, stream)
	if len(s.open) == 0 {
		s.since = time.Now()
	}
}

// above closes those the backend will not deal with, also those that come later.
func (s *streams) above(last uint32) {
	s.leaving, s.most = true, last
	for stream := range s.open {
		if stream > last {
			s.close(stream)
		}
	}
}

// watch ends a connection that has no call for long: the caller is asked to close it as
// Drain asks, and has a while for that.
func (c *Conn) watch() {
	timer := time.NewTimer(c.o.Idle)
	defer timer.Stop()
	drained := false
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-timer.C:
		}
		c.mu.Lock()
		left := c.o.Idle
		if len(c.streams.open) == 0 {
			left -= time.Since(c.streams.since)
		}
		c.mu.Unlock()
		switch {
		case left > 0:
			timer.Reset(left)
		case drained:
			c.close()
			return
		default:
			drained = true
			c.end("no call for long")
			timer.Reset(c.o.Patience)
		}
	}
}
