package relay

import (
	"slices"

	"golang.org/x/net/http2"
)

// release forwards a held call. It sends the verdict's message in place of the first n held bytes, and then the
// bytes that follow them.
func (c *Conn) release(k *call, v Verdict, n int) {
	c.mu.Lock()
	if k.stage != deciding { // the call was ended or refused in the meantime
		c.mu.Unlock()
		if v.OnOutcome != nil {
			v.OnOutcome(Outcome{})
		}
		return
	}
	k.stage, k.onOutcome = sending, v.OnOutcome
	switch {
	case v.Message != nil:
		k.held = append(addPrefix(v.Message), k.held[n:]...)
	case len(v.Appended) > 0:
		k.held = slices.Insert(k.held, n, v.Appended...)
		setSize(k.held, n-prefixSize+len(v.Appended))
	}
	c.mu.Unlock()
	for c.sendFrame(k) {
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.buf != nil && cap(k.buf) <= bufferSize && len(c.spareBuffers) < maxSpare { // only this goroutine uses the buffer
		c.spareBuffers, k.buf = append(c.spareBuffers, k.buf[:0]), nil
	}
}

// sendFrame sends one frame of a call's held bytes, as soon as the windows allow. It
// reports whether there is more to send.
func (c *Conn) sendFrame(k *call) bool {
	c.mu.Lock()
	for !c.closed && k.stage == sending && len(k.held) > 0 && min(c.flow.window, k.flow.window) <= 0 {
		c.changed.Wait()
	}
	c.mu.Unlock()
	// The relay notes the caller's RST_STREAM before it writes it. So under the writer's lock, either this code
	// sees the note and sends no frame, or the RST_STREAM follows this frame.
	c.backend.mu.Lock()
	defer c.backend.mu.Unlock()
	c.mu.Lock()
	if c.closed || k.stage != sending {
		c.mu.Unlock()
		return false
	}
	n := int(min(int64(len(k.held)), minFrameSize, c.flow.window, k.flow.window))
	if n <= 0 && len(k.held) > 0 {
		c.mu.Unlock()
		return true
	}
	var flags http2.Flags
	if n == len(k.held) {
		if k.callerDone {
			flags = http2.FlagDataEndStream
		}
		k.stage = forwarding
	}
	out := append(appendHeader(c.backend.buf[:0], http2.FrameData, flags, k.id, n), k.held[:n]...)
	c.backend.buf = out
	k.held = k.held[n:]
	k.sent = true
	c.flow.send(n)
	k.flow.send(n)
	more := k.stage == sending
	if !more {
		k.held = nil
	}
	c.mu.Unlock()
	if len(out) > headerSize || flags != 0 {
		_ = c.backend.writeLocked(out) // the other direction reports a lost backend
	}
	return more
}

// refuse answers a held call. The relay has already forwarded its headers, so it resets the stream at the backend.
// The backend's own answer may still arrive until the backend has acknowledged a frame that the relay sent after
// the reset. In that case the backend's answer counts.
func (c *Conn) refuse(k *call, v Verdict) {
	c.backend.mu.Lock()
	defer c.backend.mu.Unlock()
	c.mu.Lock()
	if k.stage == finished || k.stage == refusing {
		c.mu.Unlock()
		if v.OnOutcome != nil {
			v.OnOutcome(Outcome{})
		}
		return
	}
	if v.OnOutcome != nil {
		k.onOutcome = v.OnOutcome
	}
	k.stage, k.refusal = refusing, v.Refuse
	c.forget(k)
	c.unackedSettings = append(c.unackedSettings, k)
	c.mu.Unlock()
	out := appendWord(nil, http2.FrameRSTStream, k.id, uint32(http2.ErrCodeCancel))
	_ = c.backend.writeLocked(appendHeader(out, http2.FrameSettings, 0, 0, 0))
}
