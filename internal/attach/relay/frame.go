package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Frame types, flags, settings and error codes of RFC 9113 that mean something
// here. All other frames pass.
const (
	typeData         = 0x0
	typeHeaders      = 0x1
	typeReset        = 0x3
	typeSettings     = 0x4
	typeGoAway       = 0x7
	typeWindowUpdate = 0x8
	typeContinuation = 0x9

	flagEndStream  = 0x1
	flagAck        = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20

	settingTableSize     = 0x1
	settingInitialWindow = 0x4

	codeNone          = 0x0
	codeProtocol      = 0x1
	codeRefusedStream = 0x7
	codeCancel        = 0x8
	codeCompression   = 0x9
)

const (
	headerSize = 9
	// smallFrame is a payload size every peer takes.
	smallFrame = 16 << 10
	// firstWindow is every window's size before anybody says otherwise.
	firstWindow = 65535
	maxWindow   = 1<<31 - 1
	// bufferSize is what a direction reads at once: some frames of 16 KiB. A
	// longer frame has its buffer grow.
	bufferSize = 64 << 10
)

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

var errFrame = errors.New("malformed frame")

// flagsAt is where in a frame its flags are.
const flagsAt = 4

// frame is one frame inside a read buffer: raw is all of it.
type frame struct {
	kind   byte
	flags  byte
	stream uint32
	raw    []byte
}

func (f *frame) has(flag byte) bool { return f.flags&flag != 0 }

// payload is everything after the header.
func (f *frame) payload() []byte { return f.raw[headerSize:] }

// size is what the frame takes of a window, if it is a DATA frame.
func (f *frame) size() int { return len(f.raw) - headerSize }

// body is the payload of a DATA or HEADERS frame without padding and priority.
func (f *frame) body() ([]byte, error) {
	b := f.payload()
	if f.has(flagPadded) {
		if len(b) < 1 || int(b[0]) > len(b)-1 {
			return nil, fmt.Errorf("%w: more padding than payload", errFrame)
		}
		b = b[1 : len(b)-int(b[0])]
	}
	if f.kind == typeHeaders && f.has(flagPriority) {
		if len(b) < 5 {
			return nil, fmt.Errorf("%w: no room for a priority", errFrame)
		}
		b = b[5:]
	}
	return b, nil
}

// word reads a frame of one 32-bit word, such as WINDOW_UPDATE.
func (f *frame) word() (uint32, error) {
	if f.size() != 4 {
		return 0, fmt.Errorf("%w: %d bytes in a frame of four", errFrame, f.size())
	}
	return binary.BigEndian.Uint32(f.payload()) &^ (1 << 31), nil
}

// settings calls visit for each setting of a SETTINGS frame.
func (f *frame) settings(visit func(id uint16, v uint32)) error {
	b := f.payload()
	if len(b)%6 != 0 {
		return fmt.Errorf("%w: settings of %d bytes", errFrame, len(b))
	}
	for ; len(b) > 0; b = b[6:] {
		visit(binary.BigEndian.Uint16(b), binary.BigEndian.Uint32(b[2:]))
	}
	return nil
}

// appendHeader begins a frame of n bytes.
func appendHeader(b []byte, kind, flags byte, stream uint32, n int) []byte {
	b = append(b, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	return binary.BigEndian.AppendUint32(b, stream)
}

// appendWord makes a frame of one 32-bit word.
func appendWord(b []byte, kind byte, stream, v uint32) []byte {
	return binary.BigEndian.AppendUint32(appendHeader(b, kind, 0, stream, 4), v)
}

// appendGoAway makes a GOAWAY frame.
func appendGoAway(b []byte, last, code uint32, why string) []byte {
	b = appendHeader(b, typeGoAway, 0, 0, 8+len(why))
	b = binary.BigEndian.AppendUint32(b, last)
	b = binary.BigEndian.AppendUint32(b, code)
	return append(b, why...)
}

// reader finds frames in a stream of bytes. What it returns lies in its buffer
// and is good until the next fill.
type reader struct {
	from io.Reader
	buf  []byte
	r, w int
}

func newReader(from io.Reader) *reader { return &reader{from: from, buf: make([]byte, bufferSize)} }

// next takes the next whole frame out of the buffer; false means that there is
// none.
func (r *reader) next(f *frame) bool {
	b := r.buf[r.r:r.w]
	if len(b) < headerSize {
		return false
	}
	n := headerSize + int(b[0])<<16 + int(b[1])<<8 + int(b[2])
	if len(b) < n {
		return false
	}
	f.kind, f.flags, f.stream = b[3], b[4], binary.BigEndian.Uint32(b[5:])&^(1<<31)
	f.raw = b[:n:n]
	r.r += n
	return true
}

// fill reads more. What is left of the buffer moves to its front first; a
// frame longer than the buffer has it grow, to what a frame can be at most.
func (r *reader) fill() error {
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
		r.buf = append(r.buf, make([]byte, len(r.buf))...)
	}
	n, err := r.from.Read(r.buf[r.w:])
	r.w += n
	if n > 0 {
		return nil
	}
	return err
}

// exactly reads n bytes at the start of a connection.
func (r *reader) exactly(n int) ([]byte, error) {
	for r.w-r.r < n {
		if err := r.fill(); err != nil {
			return r.buf[r.r:r.w], err
		}
	}
	r.r += n
	return r.buf[r.r-n : r.r], nil
}
