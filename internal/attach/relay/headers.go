package relay

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/net/http2/hpack"
)

const initialTableSize = 4096

// headers are the fields of a block that the relay needs.
type headers struct {
	path     string
	encoding string
	status   string
}

// blocks decodes all header blocks of one direction in order, because each depends on the blocks before it.
type blocks struct {
	decoder *hpack.Decoder
	found   *headers
	// list is the size of a block's fields.
	list uint64
	// allowed is the largest table that the receiver allows the sender.
	allowed atomic.Uint32
	applied uint32
	// open is a block whose last frame has not arrived: its raw frames, which the relay forwards together, and its
	// fragments.
	open struct {
		first    frame
		raw      []byte
		fragment []byte
		frames   int
	}
}

func newBlocks() *blocks {
	b := &blocks{applied: initialTableSize}
	b.allowed.Store(initialTableSize)
	b.decoder = hpack.NewDecoder(initialTableSize, b.emit)
	b.decoder.SetMaxStringLength(maxBlock)
	return b
}

func (b *blocks) emit(h hpack.HeaderField) {
	b.list += uint64(h.Size())
	switch h.Name {
	case ":path":
		b.found.path = h.Value
	case "grpc-encoding":
		b.found.encoding = h.Value
	case "grpc-status":
		b.found.status = h.Value
	}
}

// allow notes the table size that the receiver announced. The size never shrinks: the sender may use the larger one
// until it has read the new one.
func (b *blocks) allow(n uint32) { b.allowed.Store(max(b.allowed.Load(), min(n, maxTable))) }

// read decodes a whole block. It returns fields in wanted, if that is not nil.
func (b *blocks) read(fragment []byte, wanted *headers) error {
	if n := b.allowed.Load(); n != b.applied {
		b.decoder.SetAllowedMaxDynamicTableSize(n)
		b.applied = n
	}
	b.found, b.list = wanted, 0
	b.decoder.SetEmitEnabled(wanted != nil)
	if _, err := b.decoder.Write(fragment); err != nil {
		return fmt.Errorf("%w: %w", errBlock, err)
	}
	if err := b.decoder.Close(); err != nil {
		return fmt.Errorf("%w: %w", errBlock, err)
	}
	if b.list > maxList {
		return fmt.Errorf("%w: headers of %d bytes, allowed are %d", errTooMuch, b.list, maxList)
	}
	return nil
}

// begins reports whether a frame begins a header block.
func (f *frame) begins() bool { return f.kind == typeHeaders || f.kind == typePushPromise }

// gather handles a frame of a header block. When the block is complete it returns the block's first frame, its
// fragment and all its bytes. Before that it returns nil.
func (b *blocks) gather(f *frame) (*frame, []byte, []byte, error) {
	o := &b.open
	switch {
	case f.begins() && o.raw == nil:
		body, err := f.body()
		if err != nil {
			return nil, nil, nil, err
		}
		if f.has(flagEndHeaders) {
			return f, body, f.raw, nil
		}
		o.frames = 0
		o.first = frame{kind: f.kind, flags: f.flags, stream: f.stream}
		o.fragment = append([]byte(nil), body...)
	case f.kind == typeContinuation && o.raw != nil && f.stream == o.first.stream:
		o.fragment = append(o.fragment, f.payload()...)
	default:
		return nil, nil, nil, fmt.Errorf("%w: header block out of order", errFrame)
	}
	o.raw = append(o.raw, f.raw...)
	o.frames++
	switch {
	case len(o.raw) > maxBlock:
		return nil, nil, nil, fmt.Errorf("%w: a header block above %d bytes", errTooMuch, maxBlock)
	case o.frames > maxContinuations:
		return nil, nil, nil, fmt.Errorf("%w: a header block in more than %d frames", errTooMuch, maxContinuations)
	}
	if !f.has(flagEndHeaders) {
		return nil, nil, nil, nil
	}
	first, fragment, raw := o.first, o.fragment, o.raw
	o.fragment, o.raw = nil, nil
	return &first, fragment, raw, nil
}

// appendTrailers makes the headers that end a call. It writes the fields without the HPACK table, so that the
// sender's state does not change. If the answer has already begun, appendTrailers writes only trailers.
func appendTrailers(out []byte, stream uint32, s *Status, begun bool) []byte {
	var b []byte
	if !begun {
		b = append(b, 0x80|8) // :status 200, row 8 of the static table
		b = appendField(b, "content-type", "application/grpc")
	}
	b = appendField(b, "grpc-status", fmt.Sprint(uint32(s.Code)))
	b = appendField(b, "grpc-message", percentEncode(s.Text))
	return append(appendHeader(out, typeHeaders, flagEndHeaders|flagEndStream, stream, len(b)), b...)
}

// appendField writes a field as a literal without indexing (RFC 7541, 6.2.2).
func appendField(b []byte, name, value string) []byte {
	b = append(b, 0)
	b = append(appendInt(b, len(name)), name...)
	return append(appendInt(b, len(value)), value...)
}

// appendInt writes an integer with a prefix of seven bits.
func appendInt(b []byte, n int) []byte {
	if n < 0x7f {
		return append(b, byte(n))
	}
	b = append(b, 0x7f)
	for n -= 0x7f; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

// maxText bounds a status text, so that its headers fit into one frame of any peer.
const maxText = 4 << 10

// percentEncode encodes a status text as gRPC requires in a header.
func percentEncode(s string) string {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s) && len(out) < maxText; i++ {
		if c := s[i]; c >= ' ' && c <= '~' && c != '%' {
			out = append(out, c)
		} else {
			out = fmt.Appendf(out, "%%%02X", c)
		}
	}
	return string(out)
}
