package relay

import (
	"slices"

	"golang.org/x/net/http2"
)

// forwardHeld forwards a held call. The first n held bytes are the call's message with its prefix. forwardHeld changes
// this message as the verdict says, and then sends all held bytes.
func (c *Conn) forwardHeld(k *call, v Verdict, n int) {
	c.mu.Lock()
	if k.stage != stageDeciding { // the call was ended or refused while the hook ran
		c.mu.Unlock()
		if v.OnOutcome != nil {
			v.OnOutcome(Outcome{})
		}
		return
	}
	k.stage, k.onOutcome = stageSending, v.OnOutcome
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
	if k.buf != nil && cap(k.buf) <= bufferSize && len(c.spareBuffers) < maxSpareBuffers { // only this goroutine uses the buffer
		c.spareBuffers, k.buf = append(c.spareBuffers, k.buf[:0]), nil
	}
}

// sendFrame sends one DATA frame of a call's held bytes, as soon as the windows allow this. It reports whether the
// relay must send more frames.
func (c *Conn) sendFrame(k *call) bool {
	c.mu.Lock()
	for !c.closed && k.stage == stageSending && len(k.held) > 0 && min(c.flow.window, k.flow.window) <= 0 {
		c.changed.Wait()
	}
	c.mu.Unlock()
	// When the caller resets the call, the relay first changes the call's stage and then forwards the RST_STREAM. So
	// under the backend's lock, either this code sees the new stage and sends no frame, or the RST_STREAM follows this
	// frame.
	c.backend.mu.Lock()
	defer c.backend.mu.Unlock()
	c.mu.Lock()
	if c.closed || k.stage != stageSending {
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
		k.stage = stageForwarding
	}
	out := append(appendHeader(c.backend.buf[:0], http2.FrameData, flags, k.id, n), k.held[:n]...)
	c.backend.buf = out
	k.held = k.held[n:]
	k.sent = true
	c.flow.send(n)
	k.flow.send(n)
	more := k.stage == stageSending
	if !more {
		k.held = nil
	}
	c.mu.Unlock()
	if len(out) > headerSize || flags != 0 {
		_ = c.backend.writeLocked(out) // onWriteError has handled the error
	}
	return more
}

// refuse refuses a held call. The relay has already forwarded the headers of the call, so it resets the stream at the
// backend and then sends a SETTINGS frame. When the backend acknowledges this frame, handleSettingsAck answers the
// call. If the backend's own answer arrives before that, the backend's answer counts.
func (c *Conn) refuse(k *call, v Verdict) {
	c.backend.mu.Lock()
	defer c.backend.mu.Unlock()
	c.mu.Lock()
	if k.stage == stageFinished || k.stage == stageRefusing {
		c.mu.Unlock()
		if v.OnOutcome != nil {
			v.OnOutcome(Outcome{})
		}
		return
	}
	if v.OnOutcome != nil {
		k.onOutcome = v.OnOutcome
	}
	k.stage, k.refusal = stageRefusing, v.Refuse
	c.dropHeldBytes(k)
	c.unackedSettings = append(c.unackedSettings, k)
	c.mu.Unlock()
	out := appendWord(nil, http2.FrameRSTStream, k.id, uint32(http2.ErrCodeCancel))
	_ = c.backend.writeLocked(appendHeader(out, http2.FrameSettings, 0, 0, 0))
}
