package relay

import "fmt"

// downward is the direction from backend to caller.
type downward struct{ direction }

// relayDown forwards what the backend sends.
func (c *Conn) relayDown() error {
	d := &downward{direction{c: c, in: c.backend.in, out: &c.caller, blocks: c.backend.blocks, sendFirst: c.sendFirstFrames}}
	return d.relay(d.take)
}

// take handles one frame.
func (d *downward) take(f *frame) error {
	switch f.kind {
	case typeData:
		if err := d.data(f); err != nil {
			return err
		}
	case typeHeaders, typePushPromise, typeContinuation:
		return d.headers(f)
	case typeReset:
		d.c.mu.Lock()
		d.c.streams.close(f.stream)
		d.c.mu.Unlock()
		if k := d.c.known(f.stream); k != nil {
			if d.c.refuses(k) {
				return d.flush() // the refusal follows
			}
			d.c.callEnded(k, nil)
		}
	case typeSettings:
		return d.settings(f)
	case typeWindowUpdate:
		return d.window(f)
	case typeGoAway:
		last, err := f.last()
		if err != nil {
			return err
		}
		d.c.mu.Lock()
		d.c.streams.closeAbove(last)
		d.c.mu.Unlock()
	}
	d.pass(f)
	return nil
}

// data reads the answer of a held call.
func (d *downward) data(f *frame) error {
	d.c.mu.Lock()
	if f.has(flagEndStream) {
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
	d.c.answer(k, body)
	d.c.mu.Unlock()
	if f.has(flagEndStream) { // an answer without trailers has no status
		d.c.callEnded(k, nil)
	}
	return nil
}

func (d *downward) headers(f *frame) error {
	single := f.begins() && f.has(flagEndHeaders)
	first, fragment, raw, err := d.blocks.gather(f)
	if err != nil {
		return err
	}
	if first == nil {
		return d.flush()
	}
	d.c.mu.Lock()
	if first.kind == typeHeaders && first.has(flagEndStream) {
		d.c.streams.end(first.stream, backendEnd)
	}
	k := d.c.calls[first.stream]
	d.c.mu.Unlock()
	if first.kind != typeHeaders {
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
		early := k.stage == refusing && !k.responseStarted
		if !k.responseStarted {
			k.responseStarted, k.replyEncoding = true, h.encoding
		}
		d.c.mu.Unlock()
		switch {
		case !first.has(flagEndStream):
		case early:
			// The backend ends a call that the relay has reset. The relay forwards the block, because later blocks
			// may refer to its table entries. The refusal ends the call for the caller.
			raw[flagsAt] &^= flagEndStream
		default:
			d.c.callEnded(k, &h)
		}
	}
	if single {
		d.pass(f)
		return nil
	}
	return d.replace(raw)
}

// settings applies the backend's settings. It does not forward an acknowledgement of
// our own frame.
func (d *downward) settings(f *frame) error {
	if f.has(flagAck) {
		return d.acknowledged(f)
	}
	counted := false
	err := f.settings(func(id uint16, v uint32) uint32 {
		switch v = clamp(id, v); id {
		case settingTableSize:
			d.c.caller.blocks.allow(v)
		case settingMaxFrame:
			d.c.caller.in.allow(v)
		case settingMaxStreams:
			v, counted = min(v, maxStreams), true
		case settingInitialWindow:
			d.c.mu.Lock()
			for _, k := range d.c.calls {
				k.flow.avail += int64(v) - d.c.initial
			}
			d.c.initial = int64(v)
			d.c.mu.Unlock()
			d.c.changed.Broadcast()
		}
		return v
	})
	switch {
	case err != nil:
		return err
	case d.sendFirst != nil && !counted:
		return d.replace(announced(f.raw))
	}
	d.pass(f)
	return nil
}

func (d *downward) acknowledged(f *frame) error {
	d.c.mu.Lock()
	var k *call
	if len(d.c.acks) > 0 {
		k, d.c.acks = d.c.acks[0], d.c.acks[1:]
	}
	if k == nil {
		d.c.usage.unanswered = max(0, d.c.usage.unanswered-1)
		d.c.mu.Unlock()
		d.pass(f)
		return nil
	}
	if k.stage != refusing { // the backend has already ended it
		d.c.mu.Unlock()
		return d.flush()
	}
	trailers := appendTrailers(nil, k.id, k.refusal, k.responseStarted)
	if k.refusal == tooManyCalls {
		trailers = appendWord(nil, typeReset, k.id, codeRefusedStream)
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
	return d.replace(trailers)
}

// window handles the backend's WINDOW_UPDATE and forwards the part that belongs to the caller's own bytes.
func (d *downward) window(f *frame) error {
	n, err := f.word()
	if err != nil {
		return err
	}
	if n == 0 { // the caller reports the error
		d.pass(f)
		return nil
	}
	d.c.mu.Lock()
	w := &d.c.flow
	if f.stream != 0 {
		k := d.c.calls[f.stream]
		if k == nil {
			d.c.mu.Unlock()
			d.pass(f)
			return nil
		}
		w = &k.flow
	}
	give := w.update(n)
	over := w.avail > maxWindow
	d.c.mu.Unlock()
	if over {
		return fmt.Errorf("%w: of stream %d", errFlow, f.stream)
	}
	d.c.changed.Broadcast()
	switch give {
	case n:
		d.pass(f)
		return nil
	case 0:
		return d.flush()
	}
	return d.replace(appendWord(nil, typeWindowUpdate, f.stream, give))
}
