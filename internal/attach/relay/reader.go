package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// reader finds frames in a stream of bytes. The frames are parts of the reader's buffer, and are valid until the next
// call of fill.
type reader struct {
	conn net.Conn
	buf  []byte
	// buf[r:w] has the bytes that were read and that next has not returned.
	r, w int
	// maxPayload is the longest payload that the receiver allows the sender.
	maxPayload atomic.Uint32
	// restTimeout is how long the sender may take for the rest of a frame or header block that it has begun.
	restTimeout time.Duration
	// deadlineSet means that a read deadline is set. inHeaderBlock means that the deadline is for a header block of
	// several frames. tookFrame means that next has returned a frame since the last read.
	deadlineSet, inHeaderBlock, tookFrame bool
}

func newReader(conn net.Conn, restTimeout time.Duration) *reader {
	r := &reader{conn: conn, buf: make([]byte, bufferSize), restTimeout: restTimeout}
	r.maxPayload.Store(minFrameSize)
	return r
}

// allowFrameSize notes the longest payload that the receiver announced. The noted length never shrinks, because the
// sender may use a larger length until the sender has read the announcement.
func (r *reader) allowFrameSize(n uint32) {
	r.maxPayload.Store(max(r.maxPayload.Load(), min(n, maxFrame)))
}

// next removes the next complete frame from the buffer and stores it in f. It returns false if the buffer has no
// complete frame. For a frame that is too long, it returns an error as soon as the frame's header has arrived.
func (r *reader) next(f *frame) (bool, error) {
	b := r.buf[r.r:r.w]
	if len(b) < headerSize {
		return false, nil
	}
	size := int(b[0])<<16 + int(b[1])<<8 + int(b[2])
	if most := int(r.maxPayload.Load()); size > most {
		return false, fmt.Errorf("%w: a payload of %d bytes, more than %d", errSize, size, most)
	}
	n := headerSize + size
	if len(b) < n {
		return false, nil
	}
	f.kind, f.flags, f.stream = http2.FrameType(b[3]), http2.Flags(b[flagsAt]), binary.BigEndian.Uint32(b[5:])&^(1<<31)
	f.raw = b[:n:n]
	r.r += n
	r.tookFrame = true
	return true, nil
}

// fill reads more bytes into the buffer. It first moves the bytes that next has not returned to the buffer's front. For
// a longer frame, the buffer grows up to the longest frame that maxPayload allows. inBlock means that the sender has
// begun a header block of several frames. The sender must send the rest of a begun block or frame within restTimeout.
func (r *reader) fill(inBlock bool) error {
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
		more := min(len(r.buf), headerSize+int(r.maxPayload.Load())-len(r.buf))
		r.buf = append(r.buf, make([]byte, max(more, 1))...)
	}
	r.setDeadline(inBlock)
	n, err := r.conn.Read(r.buf[r.w:])
	r.w += n
	switch {
	case n > 0:
		return nil
	case r.deadlineSet && errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w: the rest did not come within %v", errTooSlow, r.restTimeout)
	}
	return err
}

// setDeadline sets a read deadline if the sender has begun a frame or a header block, and otherwise removes the
// deadline. It does not change the deadline for a frame or block that was already incomplete at the last read. It
// ignores errors, because an error means a closed connection, which the read reports.
func (r *reader) setDeadline(inBlock bool) {
	begun := inBlock || r.w > 0
	same := r.deadlineSet && (!r.tookFrame || r.inHeaderBlock && inBlock)
	switch {
	case begun && !same:
		_ = r.conn.SetReadDeadline(time.Now().Add(r.restTimeout))
	case !begun && r.deadlineSet:
		_ = r.conn.SetReadDeadline(time.Time{})
	}
	r.deadlineSet, r.inHeaderBlock, r.tookFrame = begun, inBlock, false
}

// readPrefix compares the first bytes of the connection with text. It reads until it has as many bytes as text, or
// until a byte differs. same reports whether the bytes are equal to text. first has the bytes that readPrefix has read.
func (r *reader) readPrefix(text string) (first []byte, same bool, err error) {
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
