package relay

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/net/http2"
)

const (
	headerSize = 9 // the size of a frame's header in bytes
	// minFrameSize is the size of the longest payload that every peer accepts.
	minFrameSize = 16 << 10
	// initialWindow is every window's size in bytes until a peer announces another size. maxWindow is the largest size
	// that RFC 9113 allows.
	initialWindow = 65535
	maxWindow     = 1<<31 - 1
	// bufferSize is the size of a read buffer in bytes: room for some frames of 16 KiB. The buffer grows for a longer
	// frame.
	bufferSize  = 64 << 10
	settingSize = 6 // the size of one setting in a SETTINGS frame
)

// flagsAt is the offset of the flags byte in a frame.
const flagsAt = 4

// frame is one frame inside a read buffer. raw has all bytes of the frame, with the frame's header.
type frame struct {
	kind   http2.FrameType
	flags  http2.Flags
	stream uint32 // the id of the stream; 0 for the connection
	raw    []byte
}

func (f *frame) hasFlag(flag http2.Flags) bool { return f.flags.Has(flag) }

// payload returns the frame without its header.
func (f *frame) payload() []byte { return f.raw[headerSize:] }

// size returns how many bytes of a window a DATA frame uses.
func (f *frame) size() int { return len(f.raw) - headerSize }

// body returns the payload of a DATA, HEADERS or PUSH_PROMISE frame without the padding, the priority and the id of a
// promised stream.
func (f *frame) body() ([]byte, error) {
	b := f.payload()
	if f.hasFlag(http2.FlagHeadersPadded) {
		if len(b) < 1 || int(b[0]) > len(b)-1 {
			return nil, fmt.Errorf("%w: more padding than payload", errFrame)
		}
		b = b[1 : len(b)-int(b[0])]
	}
	before := 0 // bytes before the header block: a priority, or the id of a promised stream
	switch {
	case f.kind == http2.FrameHeaders && f.hasFlag(http2.FlagHeadersPriority):
		before = 5
	case f.kind == http2.FramePushPromise:
		before = 4
	}
	if len(b) < before {
		return nil, fmt.Errorf("%w: a payload of %d bytes that must have at least %d", errSize, len(b), before)
	}
	return b[before:], nil
}

// word reads a frame whose payload is one 32-bit word, such as WINDOW_UPDATE.
func (f *frame) word() (uint32, error) {
	if f.size() != 4 {
		return 0, fmt.Errorf("%w: %d bytes in a frame that must have 4", errSize, f.size())
	}
	return binary.BigEndian.Uint32(f.payload()) &^ (1 << 31), nil
}

// settings calls visit for each setting of a SETTINGS frame, and replaces the value of the setting by the result.
func (f *frame) settings(visit func(id http2.SettingID, v uint32) uint32) error {
	b := f.payload()
	if len(b)%settingSize != 0 {
		return fmt.Errorf("%w: a SETTINGS frame of %d bytes, which is not a multiple of %d", errSize, len(b), settingSize)
	}
	for ; len(b) > 0; b = b[settingSize:] {
		v := binary.BigEndian.Uint32(b[2:])
		if now := visit(http2.SettingID(binary.BigEndian.Uint16(b)), v); now != v {
			binary.BigEndian.PutUint32(b[2:], now)
		}
	}
	return nil
}

// lastStream returns the highest stream that the sender of a GOAWAY frame handles.
func (f *frame) lastStream() (uint32, error) {
	if f.size() < 8 {
		return 0, fmt.Errorf("%w: %d bytes in a GOAWAY frame that must have at least 8", errSize, f.size())
	}
	return binary.BigEndian.Uint32(f.payload()) &^ (1 << 31), nil
}

// appendHeader appends the header of a frame with a payload of n bytes.
func appendHeader(b []byte, kind http2.FrameType, flags http2.Flags, stream uint32, n int) []byte {
	b = append(b, byte(n>>16), byte(n>>8), byte(n), byte(kind), byte(flags))
	return binary.BigEndian.AppendUint32(b, stream)
}

// appendWord appends a frame whose payload is one 32-bit word.
func appendWord(b []byte, kind http2.FrameType, stream, v uint32) []byte {
	return binary.BigEndian.AppendUint32(appendHeader(b, kind, 0, stream, 4), v)
}

// appendGoAway appends a GOAWAY frame. last is the highest stream that the sender of the frame handles.
func appendGoAway(b []byte, last uint32, code http2.ErrCode, why string) []byte {
	b = appendHeader(b, http2.FrameGoAway, 0, 0, 8+len(why))
	b = binary.BigEndian.AppendUint32(b, last)
	b = binary.BigEndian.AppendUint32(b, uint32(code))
	return append(b, why...)
}
