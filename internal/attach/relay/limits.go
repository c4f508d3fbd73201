package relay

import (
	"encoding/binary"
	"time"

	"golang.org/x/net/http2"
)

// The limits of one connection. If the caller or the backend announces a smaller limit, the smaller limit applies.
const (
	// maxFrame is the longest payload of a frame, in bytes. The relay keeps a whole frame in memory. net/http announces
	// this size, and grpc-go and nghttp2 announce 16 KiB.
	maxFrame = 1 << 20
	// maxHeaderTable is the largest HPACK table of one direction, in bytes. No known implementation announces more
	// than 64 KiB, and most announce the 4 KiB of RFC 7541.
	maxHeaderTable = 64 << 10
	// maxHeaderBlock is the longest header block, in bytes, with the headers of its frames. The relay keeps a block in
	// memory until the block is complete. grpc-go plans a default of 8 KiB.
	maxHeaderBlock = 1 << 20
	// maxContinuations is how many frames a header block may have: twice as many as a block of maxHeaderBlock bytes needs
	// with frames of 16 KiB.
	maxContinuations = 2 * maxHeaderBlock / minFrameSize
	// maxHeaderList is the largest size of the decoded fields of a header block in bytes, counted as in RFC 9113, 6.5.2.
	// grpc-go has the same limit. A separate limit is needed, because decoding can make a block a thousand times larger.
	maxHeaderList = 16 << 20
	// maxStreams is how many streams may be open, and how many hooks may run. A kubelet has at most one call per pod at
	// a time, and some probes. If the kubelet reaches the limit, it waits until a call has ended. A hook uses some 40
	// KiB of stack, so maxStreams hooks use some 40 MiB.
	maxStreams = 1024
	// maxRefused is how many refused streams the relay stores, to drop their further frames. The caller may send such
	// frames before it learns of the refusal.
	maxRefused = maxStreams
	// maxCallerUnacked is how many SETTINGS frames of the caller may wait for the backend's acknowledgement. The list
	// of so many frames (unackedSettings) needs half a MiB. The limit is higher than the number of frames that the
	// socket buffers can hold. A grpc-go client sends one SETTINGS frame at a time.
	maxCallerUnacked = 1 << 16
	// maxHeldBytes is how many bytes of messages the relay may hold for one connection: four messages of
	// DefaultMaxMessage bytes. A CreateContainer message has some 10 kB.
	maxHeldBytes = 64 << 20
)

const (
	// DefaultWriteTimeout is how long one write may take. The relay closes the connection of a peer that reads nothing
	// for this time. A peer that has sent a part of a frame or of a header block must send the rest within the same time.
	DefaultWriteTimeout = 30 * time.Second
	// DefaultIdleTimeout is how long a connection may have no call. It is longer than the half hour after which clients
	// of grpc-go close their idle connections themselves.
	DefaultIdleTimeout = time.Hour
)

// usage counts how much of the limits one connection uses. The number of its streams is in Conn.streams.
type usage struct {
	runningHooks  int // number of hooks that have not returned
	heldBytes     int // bytes of messages that the relay holds
	callerUnacked int // number of SETTINGS frames of the caller that the backend has not acknowledged
}

// limitSetting returns the value of a setting that the relay forwards: the announced value, or the relay's own limit if
// the limit is lower. It does not change a value that RFC 9113 forbids. The peer that receives such a value ends the
// connection.
func limitSetting(id http2.SettingID, v uint32) uint32 {
	switch {
	case id == http2.SettingHeaderTableSize:
		return min(v, maxHeaderTable)
	case id == http2.SettingMaxFrameSize && v < 1<<24:
		return min(v, maxFrame)
	}
	return v
}

// withStreamLimit returns a SETTINGS frame with a further setting: the limit of maxStreams concurrent streams.
func withStreamLimit(raw []byte) []byte {
	n := len(raw) - headerSize
	b := appendHeader(make([]byte, 0, len(raw)+settingSize), http2.FrameSettings, 0, 0, n+settingSize)
	b = append(b, raw[headerSize:]...)
	b = binary.BigEndian.AppendUint16(b, uint16(http2.SettingMaxConcurrentStreams))
	return binary.BigEndian.AppendUint32(b, maxStreams)
}
