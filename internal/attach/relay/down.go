package relay

import (
	"fmt"

	"golang.org/x/net/http2"
)

// toCaller is the direction from backend to caller.
type toCaller struct{ direction }

// relayDown forwards the backend's frames to the caller, until the connection ends.
func (c *Conn) relayDown() error {
	d := &toCaller{direction{c: c, in: c.backend.reader, out: &c.caller, blocks: c.backend.blocks, sendFirst: c.sendFirstFrames}}
	return d.relay(d.handleFrame)
}

// handleFrame handles one frame of the backend.
func (d *toCaller) handleFrame(f *frame) error {
	switch f.kind {
	case http2.FrameData:
		if err := d.handleData(f); err != nil {
			return err
		}
	case http2.FrameHeaders, http2.FramePushPromise, http2.FrameContinuation:
		return d.handleHeaders(f)
	case http2.FrameRSTStream:
		d.c.mu.Lock()
		d.c.streams.close(f.stream)
		k := d.c.calls[f.stream]
		refused := k != nil && k.stage == stageRefusing
		d.c.mu.Unlock()
		switch {
		case refused:
			return d.flush() // handleSettingsAck refuses the call, so the caller does not get this RST_STREAM
		case k != nil:
			d.c.callEnded(k, nil)
		}
	case http2.FrameSettings:
		return d.handleSettings(f)
	case http2.FrameWindowUpdate:
		return d.handleWindowUpdate(f)
	case http2.FrameGoAway:
		last, err := f.lastStream()
		if err != nil {
			return err
		}
		d.c.mu.Lock()
		d.c.streams.closeAbove(last)
		d.c.mu.Unlock()
	}
	d.addPending(f)
	return nil
}

// handleData handles a DATA frame. If the frame belongs to a held call, handleData stores the bytes of the answer that
// are in the frame.
func (d *toCaller) handleData(f *frame) error {
	d.c.mu.Lock()
	if f.hasFlag(http2.FlagDataEndStream) {
		d.c.streams.end(f.stream, backendEnd)
	}
	k := d.c.calls[f.stream]
	d.c.mu.Unlock()
	if k == nil {
		return nil
	}
	body, err := f.body()
	if err != nil {
		return err
	}
	d.c.mu.Lock()
	d.c.storeReply(k, body)
	d.c.mu.Unlock()
	if f.hasFlag(http2.FlagDataEndStream) { // the answer ends without trailers, so it has no gRPC status
		d.c.callEnded(k, nil)
	}
	return nil
}

// handleHeaders decodes a header block. If the block ends a held call, handleHeaders reads the status of the call from
// the block.
func (d *toCaller) handleHeaders(f *frame) error {
	single := f.beginsBlock() && f.hasFlag(http2.FlagHeadersEndHeaders)
	first, fragment, raw, err := d.blocks.gather(f)
	if err != nil {
		return err
	}
	if first == nil { // the block is incomplete; gather has stored it until the rest arrives
		return d.flush()
	}
	d.c.mu.Lock()
	if first.kind == http2.FrameHeaders && first.hasFlag(http2.FlagDataEndStream) {
		d.c.streams.end(first.stream, backendEnd)
	}
	k := d.c.calls[first.stream]
	d.c.mu.Unlock()
	if first.kind != http2.FrameHeaders {
		k = nil // PUSH_PROMISE: the block is for a promised stream
	}
	var h headers
	wanted := &h
	if k == nil {
		wanted = nil
	}
	if err := d.blocks.read(fragment, wanted); err != nil {
		return err
	}
	if k != nil {
		d.c.mu.Lock()
		early := k.stage == stageRefusing && !k.responseStarted
		if !k.responseStarted {
			k.responseStarted, k.replyEncoding = true, h.encoding
		}
		d.c.mu.Unlock()
		switch {
		case !first.hasFlag(http2.FlagDataEndStream):
		case early:
			// The backend ends a call that the relay has reset. The relay forwards the block, because later blocks
			// may refer to table entries of this block. It removes END_STREAM, because the refusal must end the call.
			raw[flagsAt] &^= byte(http2.FlagDataEndStream)
		default:
			d.c.callEnded(k, &h)
		}
	}
	if single {
		d.addPending(f)
		return nil
	}
	return d.writeInstead(raw)
}

// handleSettings applies the backend's settings and forwards them. It does not forward an acknowledgement of a SETTINGS
// frame that the relay itself sent.
func (d *toCaller) handleSettings(f *frame) error {
	if f.hasFlag(http2.FlagSettingsAck) {
		return d.handleSettingsAck(f)
	}
	counted := false
	err := f.settings(func(id http2.SettingID, v uint32) uint32 {
		switch v = d.handleSetting(id, v); id {
		case http2.SettingMaxConcurrentStreams:
			v, counted = min(v, maxStreams), true
		case http2.SettingInitialWindowSize:
			d.c.mu.Lock()
			for _, k := range d.c.calls {
				k.flow.window += int64(v) - d.c.initialWindow
			}
			d.c.initialWindow = int64(v)
			d.c.mu.Unlock()
			d.c.changed.Broadcast()
		}
		return v
	})
	switch {
	case err != nil:
		return err
	case d.sendFirst != nil && !counted:
		return d.writeInstead(withStreamLimit(f.raw))
	}
	d.addPending(f)
	return nil
}

// handleSettingsAck handles the backend's acknowledgement of a SETTINGS frame. If the relay itself sent the SETTINGS
// frame, handleSettingsAck sends the caller the refusal of the call for which the relay sent the frame.
func (d *toCaller) handleSettingsAck(f *frame) error {
	d.c.mu.Lock()
	var k *call
	if len(d.c.unackedSettings) > 0 {
		k, d.c.unackedSettings = d.c.unackedSettings[0], d.c.unackedSettings[1:]
	}
	if k == nil {
		d.c.usage.callerUnacked = max(0, d.c.usage.callerUnacked-1)
		d.c.mu.Unlock()
		d.addPending(f)
		return nil
	}
	if k.stage != stageRefusing { // the backend has already ended the call
		d.c.mu.Unlock()
		return d.flush()
	}
	trailers := appendTrailers(nil, k.id, k.refusal, k.responseStarted)
	if k.refusal == tooManyCalls {
		trailers = appendWord(nil, http2.FrameRSTStream, k.id, uint32(http2.ErrCodeRefusedStream))
	}
	d.c.streams.end(k.id, backendEnd)
	switch {
	case k.callerDone:
		delete(d.c.calls, k.id)
	case k.refusal == tooManyCalls:
		d.c.noteRefused(k)
	}
	d.c.mu.Unlock()
	d.c.finish(k, Outcome{})
	return d.writeInstead(trailers)
}

// handleWindowUpdate handles the backend's WINDOW_UPDATE, and enlarges the window of the caller. If the relay itself
// has sent bytes to the backend, the caller's window grows by less than the frame says. If the relay has dropped bytes
// of the caller, the caller's window grows by more.
func (d *toCaller) handleWindowUpdate(f *frame) error {
	n, err := f.word()
	if err != nil {
		return err
	}
	if n == 0 { // not allowed: the caller reports the error to the backend
		d.addPending(f)
		return nil
	}
	d.c.mu.Lock()
	w := &d.c.flow
	if f.stream != 0 {
		k := d.c.calls[f.stream]
		if k == nil {
			d.c.mu.Unlock()
			d.addPending(f)
			return nil
		}
		w = &k.flow
	}
	forwarded := w.update(n)
	over := w.window > maxWindow
	d.c.mu.Unlock()
	if over {
		return fmt.Errorf("%w: stream %d", errFlow, f.stream)
	}
	d.c.changed.Broadcast()
	switch forwarded {
	case n:
		d.addPending(f)
		return nil
	case 0:
		return d.flush()
	}
	return d.writeInstead(appendWord(nil, http2.FrameWindowUpdate, f.stream, forwarded))
}
