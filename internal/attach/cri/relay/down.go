package relay

import (
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/grpc/codes"
)

// downward is the direction from backend to caller.
type downward struct {
	*Conn
	in    *reader
	run   []byte
	first bool // the first frames have gone on
}

// relayDown passes on what the backend sends.
func (c *Conn) relayDown() error {
	d := &downward{Conn: c, in: newReader(c.backend.Conn)}
	var f frame
	for {
		for d.in.next(&f) {
			if err := d.take(&f); err != nil {
				return c.protest(err)
			}
		}
		if err := d.flush(); err != nil {
			return err
		}
		if err := d.in.fill(); err != nil {
			return err
		}
	}
}

func (d *downward) pass(f *frame) { d.run = d.run[:len(d.run)+len(f.raw)] }

func (d *downward) begin(f *frame) {
	if len(d.run) == 0 {
		at := d.in.r - len(f.raw)
		d.run = d.in.buf[at:at]
	}
}

func (d *downward) flush() error {
	run := d.run
	d.run = nil
	if !d.first && len(run) > 0 {
		d.first = true
		return d.greet(run)
	}
	return d.caller.write(run)
}

// instead writes b where the frame under way would have gone.
func (d *downward) instead(b []byte) error {
	return errors.Join(d.flush(), d.caller.write(b))
}

func (d *downward) take(f *frame) error {
	if d.down.open.raw != nil && f.kind != typeContinuation {
		return fmt.Errorf("%w: header block interrupted", errFrame)
	}
	d.begin(f)
	switch f.kind {
	case typeData:
		if err := d.data(f); err != nil {
			return err
		}
	case typeHeaders, typeContinuation:
		return d.headers(f)
	case typeReset:
		if k := d.known(f.stream); k != nil {
			if d.refuses(k) {
				return d.flush() // the refusal follows
			}
			d.ended(k, nil)
		}
	case typeSettings:
		return d.settings(f)
	case typeWindowUpdate:
		return d.window(f)
	}
	d.pass(f)
	return nil
}

// refuses reports whether a call's refusal is on its way.
func (d *downward) refuses(k *call) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return k.stage == refusing
}

func (d *downward) known(stream uint32) *call {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls[stream]
}

// data watches the answer of a held call.
func (d *downward) data(f *frame) error {
	k := d.known(f.stream)
	if k == nil {
		return nil
	}
	body, err := f.body()
	if err != nil {
		return err
	}
	d.mu.Lock()
	k.answer(body, d.o.MaxMessage)
	d.mu.Unlock()
	if f.has(flagEndStream) { // without trailers there is no status
		d.ended(k, nil)
	}
	return nil
}

func (d *downward) headers(f *frame) error {
	single := f.kind == typeHeaders && f.has(flagEndHeaders)
	first, fragment, raw, err := d.down.gather(f)
	if err != nil {
		return err
	}
	if first == nil {
		return d.flush()
	}
	k := d.known(first.stream)
	var h headers
	wanted := &h
	if k == nil {
		wanted = nil
	}
	if err := d.down.read(fragment, wanted); err != nil {
		return err
	}
	if k != nil {
		d.mu.Lock()
		early := k.stage == refusing && !k.begun
		if !k.begun {
			k.begun, k.replyEncoding = true, h.encoding
		}
		d.mu.Unlock()
		switch {
		case !first.has(flagEndStream):
		case early:
			// The backend ends what it was told to forget. The caller has to see the
			// block, which later ones may lean on, and is told of the end by the refusal.
			raw[flagsAt] &^= flagEndStream
		default:
			d.ended(k, &h)
		}
	}
	if single {
		d.pass(f)
		return nil
	}
	return d.instead(raw)
}

// ended notes that the backend has ended a held call.
func (d *downward) ended(k *call, h *headers) {
	d.mu.Lock()
	o := k.outcome(d.o.MaxMessage)
	if k.callerDone {
		delete(d.calls, k.id)
	}
	d.mu.Unlock()
	if h != nil {
		if n, err := strconv.ParseUint(h.status, 10, 32); err == nil {
			o.Answered, o.Code = true, codes.Code(n)
		}
	}
	d.finish(k, o)
}

// settings follows what the backend says of itself; an acknowledgement of a
// frame of ours is ours.
func (d *downward) settings(f *frame) error {
	if f.has(flagAck) {
		return d.acknowledged(f)
	}
	err := f.settings(func(id uint16, v uint32) {
		switch id {
		case settingTableSize:
			d.up.allow(v)
		case settingInitialWindow:
			d.mu.Lock()
			for _, k := range d.calls {
				k.flow.avail += int64(v) - d.initial
			}
			d.initial = int64(v)
			d.mu.Unlock()
			d.changed.Broadcast()
		}
	})
	d.pass(f)
	return err
}

func (d *downward) acknowledged(f *frame) error {
	d.mu.Lock()
	var k *call
	if len(d.acks) > 0 {
		k, d.acks = d.acks[0], d.acks[1:]
	}
	if k == nil {
		d.mu.Unlock()
		d.pass(f)
		return nil
	}
	if k.stage != refusing { // the backend had ended it before
		d.mu.Unlock()
		return d.flush()
	}
	trailers := appendTrailers(nil, k.id, k.refusal, k.begun)
	if k.callerDone {
		delete(d.calls, k.id)
	}
	d.mu.Unlock()
	d.finish(k, Outcome{})
	return d.instead(trailers)
}

// window takes the backend's WINDOW_UPDATE: the caller is told what is its own.
func (d *downward) window(f *frame) error {
	n, err := f.word()
	if err != nil {
		return err
	}
	d.mu.Lock()
	w := &d.flow
	if f.stream != 0 {
		k := d.calls[f.stream]
		if k == nil {
			d.mu.Unlock()
			d.pass(f)
			return nil
		}
		w = &k.flow
	}
	give := w.update(n)
	d.mu.Unlock()
	d.changed.Broadcast()
	switch give {
	case n:
		d.pass(f)
		return nil
	case 0:
		return d.flush()
	}
	return d.instead(appendWord(nil, typeWindowUpdate, f.stream, give))
}
