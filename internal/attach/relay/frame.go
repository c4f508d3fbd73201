package relay

import (
	"encoding/binary"
	"fmt"
)

// Frame types, flags, settings and error codes of RFC 9113 that the relay handles. It
// forwards all other frames.
const (
	typeData         = 0x0
	typeHeaders      = 0x1
	typeReset        = 0x3
	typeSettings     = 0x4
	typePushPromise  = 0x5
	typeGoAway       = 0x7
	typeWindowUpdate = 0x8
	typeContinuation = 0x9

	flagEndStream  = 0x1
	flagAck        = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20

	settingTableSize     = 0x1
	settingMaxStreams    = 0x3
	settingInitialWindow = 0x4
	settingMaxFrame      = 0x5

	codeNone            = 0x0
	codeProtocol        = 0x1
	codeInternal        = 0x2
	codeFlowControl     = 0x3
	codeFrameSize       = 0x6
	codeRefusedStream   = 0x7
	codeCancel          = 0x8
	codeCompression     = 0x9
	codeEnhanceYourCalm = 0xb // ENHANCE_YOUR_CALM
)

const (
	headerSize = 9
	// minFrameSize is a payload size that every peer accepts.
	minFrameSize = 16 << 10
	// initialWindow is every window's size until a peer announces another.
	initialWindow = 65535
	maxWindow     = 1<<31 - 1
	// bufferSize is how many bytes a direction reads at once: some frames of 16 KiB. The buffer grows for a longer
	// frame.
	bufferSize  = 64 << 10
	settingSize = 6
)

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// flagsAt is the offset of a frame's flags.
const flagsAt = 4

// frame is one frame inside a read buffer. raw has all its bytes.
type frame struct {
	kind   byte
	flags  byte
	stream uint32
	raw    []byte
}

func (f *frame) has(flag byte) bool { return f.flags&flag != 0 }

// payload is everything after the header.
func (f *frame) payload() []byte { return f.raw[headerSize:] }

// size is how many bytes of a window a DATA frame uses.
func (f *frame) size() int { return len(f.raw) - headerSize }

// body is the payload of a DATA, HEADERS or PUSH_PROMISE frame without padding, priority
// and promised stream.
func (f *frame) body() ([]byte, error) {
	b := f.payload()
	if f.has(flagPadded) {
		if len(b) < 1 || int(b[0]) > len(b)-1 {
			return nil, fmt.Errorf("%w: more padding than payload", errFrame)
		}
		b = b[1 : len(b)-int(b[0])]
	}
	before := 0 // bytes before the block: a priority, or a promised stream
	switch {
	case f.kind == typeHeaders && f.has(flagPriority):
		before = 5
	case f.kind == typePushPromise:
		before = 4
	}
	if len(b) < before {
		return nil, fmt.Errorf("%w: %d bytes, expected at least %d", errSize, len(b), before)
	}
	return b[before:], nil
}

// word reads a frame whose payload is one 32-bit word, such as WINDOW_UPDATE.
func (f *frame) word() (uint32, error) {
	if f.size() != 4 {
		return 0, fmt.Errorf("%w: %d bytes in a frame of 4", errSize, f.size())
	}
	return binary.BigEndian.Uint32(f.payload()) &^ (1 << 31), nil
}

// settings calls visit for each setting of a SETTINGS frame, and replaces its value by
// the result.
func (f *frame) settings(visit func(id uint16, v uint32) uint32) error {
	b := f.payload()
	if len(b)%settingSize != 0 {
		return fmt.Errorf("%w: settings of %d bytes", errSize, len(b))
	}
	for ; len(b) > 0; b = b[settingSize:] {
		v := binary.BigEndian.Uint32(b[2:])
		if now := visit(binary.BigEndian.Uint16(b), v); now != v {
			binary.BigEndian.PutUint32(b[2:], now)
		}
	}
	return nil
}

// last reads a GOAWAY frame: the highest stream that its sender handles.
func (f *frame) last() (uint32, error) {
	if f.size() < 8 {
		return 0, fmt.Errorf("%w: %d bytes in a GOAWAY", errSize, f.size())
	}
	return binary.BigEndian.Uint32(f.payload()) &^ (1 << 31), nil
}

// appendHeader begins a frame of n bytes.
func appendHeader(b []byte, kind, flags byte, stream uint32, n int) []byte {
	b = append(b, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	return binary.BigEndian.AppendUint32(b, stream)
}

// appendWord makes a frame whose payload is one 32-bit word.
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
