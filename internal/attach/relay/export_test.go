package relay

import "fmt"

// Clamp is clamp.
var Clamp = limitSetting

// Trailers is appendTrailers.
func Trailers(stream uint32, s Status, begun bool) []byte {
	return appendTrailers(nil, stream, &s, begun)
}

// Bounds are the limits that tests use.
const (
	MaxContinuations = maxContinuations
	MaxText          = maxStatusText
)

// Left lists what a connection that has ended still stores about its calls; it should be empty.
func (c *Conn) Left() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.usage.heldBytes != 0 || c.usage.runningHooks != 0 || len(c.calls) != 0 {
		return fmt.Sprintf("%d bytes, %d hooks, %d calls", c.usage.heldBytes, c.usage.runningHooks, len(c.calls))
	}
	return ""
}

// Beyond lists the parts of a connection that are larger than allowed; it should be empty. No other goroutine may
// read from the ends of the connection meanwhile.
func (c *Conn) Beyond() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := 2 * (headerSize + maxFrame)
	if len(c.caller.reader.buf) > most || len(c.backend.reader.buf) > most || cap(c.caller.blocks.partial.raw)+cap(c.backend.blocks.partial.raw) > 4*(maxHeaderBlock+maxFrame) ||
		len(c.streams.open) > maxStreams || len(c.calls) > 2*maxStreams+maxRefused || len(c.unackedSettings) > maxCallerUnacked+2*maxStreams+1 || c.usage.heldBytes > maxHeldBytes {
		return fmt.Sprintf("%d and %d bytes of frames, %d and %d of blocks, %d streams, %d calls, %d acks, %d bytes", len(c.caller.reader.buf),
			len(c.backend.reader.buf), cap(c.caller.blocks.partial.raw), cap(c.backend.blocks.partial.raw), len(c.streams.open), len(c.calls), len(c.unackedSettings), c.usage.heldBytes)
	}
	return ""
}
