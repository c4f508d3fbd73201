package relay

import (
	"encoding/binary"
	"time"
)

// What one connection may have of this process. The ends have limits of their own, which
// reach each other as they are where they are smaller than these.
const (
	// maxFrame is the longest payload of a frame, in bytes: what net/http announces.
	// grpc-go and nghttp2 announce 16 KiB. A frame lies in memory as a whole.
	maxFrame = 1 << 20
	// maxTable is the greatest compression table of one direction, in bytes. No known
	// implementation announces more than 64 KiB, and most the 4 KiB of RFC 7541.
	maxTable = 64 << 10
	// maxBlock is the longest header block, in bytes, with the frames it comes in. It
	// lies in memory until it is whole. grpc-go is about to take 8 KiB as its default.
	maxBlock = 1 << 20
	// maxContinuations is how many frames a block may come in: twice what one of
	// maxBlock needs in frames of 16 KiB.
	maxContinuations = 2 * maxBlock / smallFrame
	// maxList is the greatest size of a block's fields as RFC 9113, 6.5.2 counts it, in
	// bytes: what grpc-go takes today. A block can be a thousand times smaller.
	maxList = 16 << 20
	// maxStreams is how many streams may be open, and how many hooks asked. A kubelet
	// has one call for each pod under way at most, probes beside them, and waits with
	// others until one has ended. A hook takes some 40 KiB of stack.
	maxStreams = 1024
	// maxRefused is how many refused streams are remembered, as long as their caller may
	// not know and send more of them.
	maxRefused = maxStreams
	// maxUnanswered is how many of the caller's SETTINGS frames the backend has not
	// acknowledged: half a MiB of notes, and more than fit into the sockets' buffers. A
	// grpc-go client sends one at a time.
	maxUnanswered = 1 << 16
	// maxKept is how many bytes of messages a connection holds: four of the greatest.
	// A creation is some 10 KB.
	maxKept = 64 << 20
)

const (
	// DefaultPatience is how long one write may take: a peer that reads nothing for so
	// long holds its connection's buffers, and is no peer any more. A peer that has
	// sent half of a frame or of a header block has as long for the rest.
	DefaultPatience = 30 * time.Second
	// DefaultIdle is how long a connection may be without a call. The clients of grpc-go
	// close theirs after half an hour by themselves.
	DefaultIdle = time.Hour
)

// use is what of its limits a connection has taken, beside its streams.
type use struct {
	asked      int // hooks that have not returned
	kept       int // bytes of messages that are held
	unanswered int // SETTINGS frames of the caller that the backend has not acknowledged
}

// clamp returns the value of a setting as the relay passes it on: the announced one, at
// most the relay's own limit. It passes a value that RFC 9113 forbids unchanged: the peer
// that receives it ends the connection.
func clamp(id uint16, v uint32) uint32 {
	switch {
	case id == settingTableSize:
		return min(v, maxTable)
	case id == settingMaxFrame && v < 1<<24:
		return min(v, maxFrame)
	}
	return v
}

// announced is a SETTINGS frame with the number of streams added.
func announced(raw []byte) []byte {
	n := len(raw) - headerSize
	b := appendHeader(make([]byte, 0, len(raw)+settingSize), typeSettings, 0, 0, n+settingSize)
	b = append(b, raw[headerSize:]...)
	b = binary.BigEndian.AppendUint16(b, settingMaxStreams)
	return binary.BigEndian.AppendUint32(b, maxStreams)
}
