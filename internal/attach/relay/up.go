package relay

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// upward is the direction from caller to backend.
type upward struct{ direction }

// relayUp passes on what the caller sends. first is how it began.
func (c *Conn) relayUp(first []byte) error {
	u := &upward{direction{c: c, in: c.caller.in, out: &c.backend, blocks: c.caller.blocks}}
	if err := c.backend.write(first); err != nil {
		return err
	}
	return u.relay(u.take)
}

// take deals with one frame.
func (u *upward) take(f *frame) error {
	if u.beyond(f) {
		return u.flush()
	}
	switch f.kind {
	case typeData:
		return u.data(f)
	case typeHeaders, typePushPromise, typeContinuation:
		return u.headers(f)
	case typeReset:
		if !u.c.reset(f.stream) {
			return u.flush()
		}
	case typeSettings:
		return u.settings(f)
	}
	u.pass(f)
	return nil
}

// beyond reports whether a frame belongs to a stream that the caller opened after
// GOAWAY; it repeats that call on another connection. Header blocks are read all
// the same.
func (u *upward) beyond(f *frame) bool {
	if f.stream == 0 || f.begins() || f.kind == typeContinuation {
		return false
	}
	u.c.mu.Lock()
	defer u.c.mu.Unlock()
	if !u.c.drain.closing || f.stream <= u.c.drain.limit {
		return false
	}
	if f.kind == typeData {
		u.c.flow.hold(f.size())
	}
	return true
}

// settings follows what the caller says of itself, and keeps count of who is
// waiting for an acknowledgement.
func (u *upward) settings(f *frame) error {
	if f.has(flagAck) {
		u.pass(f)
		return nil
	}
	if err := f.settings(func(id uint16, v uint32) uint32 {
		switch v = clamp(id, v); id {
		case settingTableSize:
			u.c.backend.blocks.allow(v)
		case settingMaxFrame:
			u.c.backend.in.allow(v)
		}
		return v
	}); err != nil {
		return err
	}
	u.pass(f)
	u.out.mu.Lock()
	defer u.out.mu.Unlock()
	u.c.mu.Lock()
	u.c.acks = append(u.c.acks, nil)
	u.c.use.unanswered++
	n := u.c.use.unanswered
	u.c.mu.Unlock()
	if n > maxUnanswered {
		return fmt.Errorf("%w: %d SETTINGS frames, none of which the server has acknowledged", errCalm, n)
	}
	run := u.run
	u.run = nil
	return u.out.writeLocked(run)
}

// headers reads a header block and holds the call it opens, where that is
// wanted.
func (u *upward) headers(f *frame) error {
	single := f.begins() && f.has(flagEndHeaders)
	first, fragment, raw, err := u.blocks.gather(f)
	if err != nil {
		return err
	}
	if first == nil { // more to come; kept until then
		return u.flush()
	}
	var h headers
	if err := u.blocks.read(fragment, &h); err != nil {
		return err
	}
	var k *call
	if first.kind == typeHeaders {
		var dropped bool
		if k, dropped, err = u.c.opened(first, &h); err != nil || dropped {
			return errors.Join(err, u.flush())
		}
	}
	if single {
		u.pass(f)
	} else if err := u.instead(raw); err != nil {
		return err
	}
	if k != nil { // the backend has read the block, on which others may lean
		err = u.flush()
		u.c.refuse(k, Verdict{Refuse: k.refusal})
	}
	return err
}

// data passes or keeps a DATA frame.
func (u *upward) data(f *frame) error {
	u.c.mu.Lock()
	k := u.c.calls[f.stream]
	if f.has(flagEndStream) {
		u.c.streams.end(f.stream, callerEnd)
	}
	if k == nil || k.stage == flowing {
		u.c.mu.Unlock()
		return u.through(f, k)
	}
	if k.quick && k.stage == collecting && len(k.held) == 0 {
		k.quick = false
		u.c.mu.Unlock()
		if u.c.atOnce(k, f) {
			return u.through(f, k)
		}
		u.c.mu.Lock()
	}
	u.c.flow.hold(f.size())
	k.flow.hold(f.size())
	whole, refusal, err := u.c.keep(k, f)
	grants := u.c.grants(k)
	u.c.mu.Unlock()
	// The call's headers go before its message.
	err = errors.Join(err, u.flush(), u.c.caller.write(grants))
	switch {
	case refusal != nil:
		u.c.refuse(k, Verdict{Refuse: refusal})
	case whole:
		u.c.start(k)
	}
	return err
}

// through passes a DATA frame, once the backend has room for it. It always has,
// unless a message was made longer or the caller was let go on while one was
// held.
func (u *upward) through(f *frame, k *call) error {
	n := f.size()
	room := func() bool {
		return n == 0 || u.c.dead || u.c.flow.takes(n) && (k == nil || k.flow.takes(n))
	}
	u.c.mu.Lock()
	if !room() { // what came before may be what the backend is waiting for
		u.c.mu.Unlock()
		if err := u.flush(); err != nil {
			return err
		}
		u.begin(f)
		u.c.mu.Lock()
		if err := u.await(room); err != nil {
			u.c.mu.Unlock()
			err = fmt.Errorf("window for %d bytes: %w", n, err)
			u.c.unwritten("backend", err)
			return err
		}
	}
	u.c.flow.pass(n)
	if k != nil {
		k.flow.pass(n)
		if f.has(flagEndStream) {
			u.c.callerEnded(k)
		}
	}
	u.c.mu.Unlock()
	u.pass(f)
	return nil
}

// await waits until there is room, as long as a write may take. The mutex is held.
func (u *upward) await(room func() bool) error {
	late := false
	timer := time.AfterFunc(u.c.o.Patience, func() {
		u.c.mu.Lock()
		defer u.c.mu.Unlock()
		late = true
		u.c.changed.Broadcast()
	})
	defer timer.Stop()
	for !room() {
		if late {
			return os.ErrDeadlineExceeded
		}
		u.c.changed.Wait()
	}
	return nil
}
