package relay

import (
	"bytes"
	"fmt"
	"sync/atomic"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// initialTableSize is the size of an HPACK table until a peer announces another.
const initialTableSize = 4096

// headers has the fields of a header block that the relay needs.
type headers struct {
	path     string // ":path": the path of the gRPC method
	encoding string // "grpc-encoding": how the messages are compressed
	status   string // "grpc-status": the status code of the call
}

// blocks decodes all header blocks of one direction in order, because HPACK encodes each block with the help of the
// blocks before it.
type blocks struct {
	decoder       *hpack.Decoder
	wantedHeaders *headers // where emit stores fields of the current block
	// listSize is the size of the fields of the current block, in bytes.
	listSize uint64
	// allowedTableSize is the size in bytes of the largest HPACK table that the receiver allows the sender.
	// appliedTableSize is the size that the decoder uses.
	allowedTableSize atomic.Uint32
	appliedTableSize uint32
	// partial is a block whose last frame has not arrived.
	partial struct {
		first    frame  // the block's first frame, without its bytes
		raw      []byte // the bytes of the frames, which the relay forwards together; nil if no block is incomplete
		fragment []byte // the part of the encoded block that has arrived
		frames   int    // how many frames have arrived
	}
}

func newBlocks() *blocks {
	b := &blocks{appliedTableSize: initialTableSize}
	b.allowedTableSize.Store(initialTableSize)
	b.decoder = hpack.NewDecoder(initialTableSize, b.emit)
	b.decoder.SetMaxStringLength(maxHeaderBlock)
	return b
}

// emit handles a decoded field of a block. The decoder calls emit for each field if the method read asks it to do so.
func (b *blocks) emit(h hpack.HeaderField) {
	b.listSize += uint64(h.Size())
	switch h.Name {
	case ":path":
		b.wantedHeaders.path = h.Value
	case "grpc-encoding":
		b.wantedHeaders.encoding = h.Value
	case "grpc-status":
		b.wantedHeaders.status = h.Value
	}
}

// allowTableSize notes the size of the HPACK table that the receiver announced. The noted size never shrinks, because
// the sender may use a larger size until the sender has read the announcement.
func (b *blocks) allowTableSize(n uint32) {
	b.allowedTableSize.Store(max(b.allowedTableSize.Load(), min(n, maxHeaderTable)))
}

// read decodes a whole block. If wanted is not nil, read stores the fields that the relay needs in wanted.
func (b *blocks) read(fragment []byte, wanted *headers) error {
	if n := b.allowedTableSize.Load(); n != b.appliedTableSize {
		b.decoder.SetAllowedMaxDynamicTableSize(n)
		b.appliedTableSize = n
	}
	b.wantedHeaders, b.listSize = wanted, 0
	b.decoder.SetEmitEnabled(wanted != nil)
	if _, err := b.decoder.Write(fragment); err != nil {
		return fmt.Errorf("%w: %w", errBlock, err)
	}
	if err := b.decoder.Close(); err != nil {
		return fmt.Errorf("%w: %w", errBlock, err)
	}
	if b.listSize > maxHeaderList {
		return fmt.Errorf("%w: headers of %d bytes, more than %d", errConnectionLimit, b.listSize, maxHeaderList)
	}
	return nil
}

// beginsBlock reports whether a frame begins a header block.
func (f *frame) beginsBlock() bool {
	return f.kind == http2.FrameHeaders || f.kind == http2.FramePushPromise
}

// gather adds a frame to the header block to which the frame belongs. If the block is then complete, gather returns the
// block's first frame, the encoded block, and the bytes of all frames of the block. Otherwise it returns nil.
func (b *blocks) gather(f *frame) (*frame, []byte, []byte, error) {
	o := &b.partial
	switch {
	case f.beginsBlock() && o.raw == nil:
		body, err := f.body()
		if err != nil {
			return nil, nil, nil, err
		}
		if f.hasFlag(http2.FlagHeadersEndHeaders) {
			return f, body, f.raw, nil
		}
		o.frames = 0
		o.first = frame{kind: f.kind, flags: f.flags, stream: f.stream}
		o.fragment = append([]byte(nil), body...)
	case f.kind == http2.FrameContinuation && o.raw != nil && f.stream == o.first.stream:
		o.fragment = append(o.fragment, f.payload()...)
	default:
		return nil, nil, nil, fmt.Errorf("%w: a CONTINUATION frame that does not continue a header block of its stream", errFrame)
	}
	o.raw = append(o.raw, f.raw...)
	o.frames++
	switch {
	case len(o.raw) > maxHeaderBlock:
		return nil, nil, nil, fmt.Errorf("%w: a header block of more than %d bytes", errConnectionLimit, maxHeaderBlock)
	case o.frames > maxContinuations:
		return nil, nil, nil, fmt.Errorf("%w: a header block in more than %d frames", errConnectionLimit, maxContinuations)
	}
	if !f.hasFlag(http2.FlagHeadersEndHeaders) {
		return nil, nil, nil, nil
	}
	first, fragment, raw := o.first, o.fragment, o.raw
	o.fragment, o.raw = nil, nil
	return &first, fragment, raw, nil
}

// appendTrailers appends a HEADERS frame that ends a call with the status s. begun means that the caller has already
// got headers of the answer, so the frame has only trailers. All fields are marked as sensitive. Such fields do not
// enter the HPACK table of the caller, which must remain as the backend's encoder expects it.
func appendTrailers(out []byte, stream uint32, s *Status, begun bool) []byte {
	var b bytes.Buffer
	encoder := hpack.NewEncoder(&b)
	field := func(name, value string) {
		_ = encoder.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: true}) // a write to a buffer cannot fail
	}
	if !begun {
		field(":status", "200")
		field("content-type", "application/grpc")
	}
	field("grpc-status", fmt.Sprint(uint32(s.Code)))
	field("grpc-message", percentEncode(s.Text))
	return append(appendHeader(out, http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagDataEndStream, stream, b.Len()), b.Bytes()...)
}

// maxStatusText is the longest encoded status text in bytes. A HEADERS frame with this text is still so short that
// every peer accepts it.
const maxStatusText = 4 << 10

// percentEncode encodes a status text as gRPC requires for the header grpc-message. It cuts the text at maxStatusText.
func percentEncode(s string) string {
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s) && len(out) < maxStatusText; i++ {
		if c := s[i]; c >= ' ' && c <= '~' && c != '%' {
			out = append(out, c)
		} else {
			out = fmt.Appendf(out, "%%%02X", c)
		}
	}
	return string(out)
}
