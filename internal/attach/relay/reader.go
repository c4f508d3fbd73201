package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// reader finds frames in a stream of bytes. What it returns lies in its buffer
// and is good until the next fill.
type reader struct {
	from net.Conn
	buf  []byte
	r, w int
	// frame is the longest payload the sender may send, as the receiver announced.
	frame atomic.Uint32
	// within is how long the sender may take for the rest of what it has begun.
	within time.Duration
	// pending: a read deadline is set, of what was begun before the last frame was taken
	// (inside) or after it.
	pending, inside, taken bool
}

func newReader(from net.Conn, within time.Duration) *reader {
	r := &reader{from: from, buf: make([]byte, bufferSize), within: within}
	r.frame.Store(smallFrame)
	return r
}

// allow notes the longest payload the receiver announced. It never shrinks: a sender
// may use the greater one until it has read the smaller one.
func (r *reader) allow(n uint32) { r.frame.Store(max(r.frame.Load(), min(n, maxFrame))) }

// next takes the next whole frame out of the buffer; false means that there is
// none. A frame that is too long is an error as soon as its header is there.
func (r *reader) next(f *frame) (bool, error) {
	b := r.buf[r.r:r.w]
	if len(b) < headerSize {
		return false, nil
	}
	size := int(b[0])<<16 + int(b[1])<<8 + int(b[2])
	if most := int(r.frame.Load()); size > most {
		return false, fmt.Errorf("%w: a payload of %d bytes, where %d are allowed", errSize, size, most)
	}
	n := headerSize + size
	if len(b) < n {
		return false, nil
	}
	f.kind, f.flags, f.stream = b[3], b[4], binary.BigEndian.Uint32(b[5:])&^(1<<31)
	f.raw = b[:n:n]
	r.r += n
	r.taken = true
	return true, nil
}

// fill reads more. What is left of the buffer moves to its front first; a
// frame longer than the buffer has it grow, to what a frame can be at most. Where the
// sender has begun a frame, or something of several (inside), it has to send the rest
// within bounds.
func (r *reader) fill(inside bool) error {
	if r.r == r.w {
		r.r, r.w = 0, 0
		if len(r.buf) > 4*bufferSize {
			r.buf = make([]byte, bufferSize)
		}
	} else if r.r > 0 {
		r.w = copy(r.buf, r.buf[r.r:r.w])
		r.r = 0
	}
	if r.w == len(r.buf) {
		more := min(len(r.buf), headerSize+int(r.frame.Load())-len(r.buf))
		r.buf = append(r.buf, make([]byte, max(more, 1))...)
	}
	r.bound(inside)
	n, err := r.from.Read(r.buf[r.w:])
	r.w += n
	switch {
	case n > 0:
		return nil
	case r.pending && errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w: the rest of a frame did not come within %v", errSlow, r.within)
	}
	return err
}

// bound sets the time at which a read that is to come ends, or none. What was begun
// before has the time it had. A failure is one of a closed connection, which the read
// finds.
func (r *reader) bound(inside bool) {
	begun := inside || r.w > 0
	same := r.pending && (!r.taken || r.inside && inside)
	switch {
	case begun && !same:
		_ = r.from.SetReadDeadline(time.Now().Add(r.within))
	case !begun && r.pending:
		_ = r.from.SetReadDeadline(time.Time{})
	}
	r.pending, r.inside, r.taken = begun, inside, false
}

// begins reads as many bytes as text has, or fewer that are not its beginning. Who
// connects has them to send at once.
func (r *reader) begins(text string) (first []byte, same bool, err error) {
	for {
		n := min(r.w, len(text))
		if first = r.buf[:n]; string(first) != text[:n] {
			return r.buf[:r.w], false, nil
		}
		if n == len(text) {
			r.r = n
			return first, true, nil
		}
		if err := r.fill(true); err != nil {
			return nil, false, err
		}
	}
}
