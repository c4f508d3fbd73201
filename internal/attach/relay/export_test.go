package relay

import "fmt"

// Clamp is clamp.
var Clamp = clamp

// Trailers is appendTrailers.
func Trailers(stream uint32, s Status, begun bool) []byte {
	return appendTrailers(nil, stream, &s, begun)
}

// Bounds are the limits that tests reckon with.
const (
	MaxContinuations = maxContinuations
	MaxText          = maxText
)

// Left is what a connection that has ended keeps of its calls; empty where it is nothing.
func (c *Conn) Left() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.use.kept != 0 || c.use.asked != 0 || len(c.calls) != 0 {
		return fmt.Sprintf("%d bytes, %d hooks, %d calls", c.use.kept, c.use.asked, len(c.calls))
	}
	return ""
}

// Beyond is which of a connection's parts is larger than it may be; empty where none is. Nobody
// may read from its ends meanwhile.
func (c *Conn) Beyond() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := 2 * (headerSize + maxFrame)
	if len(c.caller.in.buf) > most || len(c.backend.in.buf) > most || cap(c.caller.blocks.open.raw)+cap(c.backend.blocks.open.raw) > 4*(maxBlock+maxFrame) ||
		len(c.streams.open) > maxStreams || len(c.calls) > 2*maxStreams+maxRefused || len(c.acks) > maxUnanswered+2*maxStreams+1 || c.use.kept > maxKept {
		return fmt.Sprintf("%d and %d bytes of frames, %d and %d of blocks, %d streams, %d calls, %d acks, %d bytes", len(c.caller.in.buf),
			len(c.backend.in.buf), cap(c.caller.blocks.open.raw), cap(c.backend.blocks.open.raw), len(c.streams.open), len(c.calls), len(c.acks), c.use.kept)
	}
	return ""
}
