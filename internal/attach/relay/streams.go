package relay

import "time"

// The two ends of a stream, as bits of a set of ends.
const (
	callerEnd = 1 << iota
	backendEnd
	bothEnds = callerEnd | backendEnd
)

// streams has the open streams of a connection.
type streams struct {
	open map[uint32]uint8 // by stream id: the set of ends that have sent END_STREAM
	// idleSince is when the last stream closed, or the connection began.
	idleSince time.Time
	// goingAway means that the backend has sent GOAWAY. The backend then handles no stream above lastStream.
	goingAway  bool
	lastStream uint32
	// refused are the ids of streams that the relay refused, because maxStreams other streams were open. The caller may
	// still send frames of these streams.
	refused []uint32
}

// end notes that the caller or the backend has sent its last frame on a stream. The parameter end says which of them.
// If the other one has already sent its last frame, the stream is closed.
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

// close removes a stream from the open streams.
func (s *streams) close(stream uint32) {
	if _, ok := s.open[stream]; !ok {
		return
	}
	delete(s.open, stream)
	if len(s.open) == 0 {
		s.idleSince = time.Now()
	}
}

// closeAbove closes the streams above last. The backend has announced by GOAWAY that it does not handle these streams.
// From now on, handleHeaders opens no stream above last.
func (s *streams) closeAbove(last uint32) {
	s.goingAway, s.lastStream = true, last
	for stream := range s.open {
		if stream > last {
			s.close(stream)
		}
	}
}

// closeWhenIdle ends a connection that has had no call for IdleTimeout. It first asks the caller, by a GOAWAY frame, to
// close the connection. If the caller has not done so after WriteTimeout, closeWhenIdle closes the connection.
func (c *Conn) closeWhenIdle() {
	timer := time.NewTimer(c.o.IdleTimeout)
	defer timer.Stop()
	drained := false
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-timer.C:
		}
		c.mu.Lock()
		left := c.o.IdleTimeout
		if len(c.streams.open) == 0 {
			left -= time.Since(c.streams.idleSince)
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
			c.startDrain("the connection had no call for a long time")
			timer.Reset(c.o.WriteTimeout)
		}
	}
}
