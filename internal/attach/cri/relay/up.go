package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
)

// upward is the direction from caller to backend. run is what of the buffer
// goes on unchanged and has not been written.
type upward struct {
	*Conn
	in  *reader
	run []byte
}

// relayUp passes on what the caller sends.
func (c *Conn) relayUp() error {
	u := &upward{Conn: c, in: newReader(c.caller.Conn)}
	first, err := u.in.exactly(len(preface))
	if werr := c.backend.write(first); werr != nil || err != nil {
		return errors.Join(err, werr)
	}
	if string(first) != preface {
		return u.blindly()
	}
	var f frame
	for {
		for u.in.next(&f) {
			if err := u.take(&f); err != nil {
				return c.protest(err)
			}
		}
		if err := u.flush(); err != nil {
			return err
		}
		if err := u.in.fill(); err != nil {
			return err
		}
	}
}

// blindly passes bytes of what is not HTTP/2: what to say of it is the
// backend's business.
func (u *upward) blindly() error {
	if err := u.backend.write(u.in.buf[u.in.r:u.in.w]); err != nil {
		return err
	}
	_, err := io.Copy(&u.backend, u.caller.Conn)
	return err
}

// protest tells the caller that its frame ends the connection.
func (c *Conn) protest(err error) error {
	switch {
	case errors.Is(err, errBlock):
		_ = c.caller.write(appendGoAway(nil, c.last.Load(), codeCompression, err.Error()))
	case errors.Is(err, errFrame):
		_ = c.caller.write(appendGoAway(nil, c.last.Load(), codeProtocol, err.Error()))
	}
	return err
}

// pass adds a frame to what goes on. Frames lie one after another in the
// buffer, so only one that was taken out ends a run.
func (u *upward) pass(f *frame) { u.run = u.run[:len(u.run)+len(f.raw)] }

// begin makes f the start of a run where there is none.
func (u *upward) begin(f *frame) {
	if len(u.run) == 0 {
		at := u.in.r - len(f.raw)
		u.run = u.in.buf[at:at]
	}
}

func (u *upward) flush() error {
	run := u.run
	u.run = nil
	return u.backend.write(run)
}

// take deals with one frame.
func (u *upward) take(f *frame) error {
	if u.up.open.raw != nil && f.kind != typeContinuation {
		return fmt.Errorf("%w: header block interrupted", errFrame)
	}
	u.begin(f)
	if u.beyond(f) {
		return u.flush()
	}
	switch f.kind {
	case typeData:
		return u.data(f)
	case typeHeaders, typeContinuation:
		return u.headers(f)
	case typeReset:
		if !u.reset(f.stream) {
			return u.flush()
		}
	case typeSettings:
		return u.settings(f)
	}
	u.pass(f)
	return nil
}

// beyond reports whether a frame belongs to a stream the caller opened though it
// was told to open no more; it repeats that call elsewhere. Header blocks are
// read all the same.
func (u *upward) beyond(f *frame) bool {
	if f.stream == 0 || f.kind == typeHeaders || f.kind == typeContinuation {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.closing || f.stream <= u.limit {
		return false
	}
	if f.kind == typeData {
		u.flow.hold(f.size())
	}
	return true
}

// settings follows what the caller says of itself, and keeps count of who is
// waiting for an acknowledgement.
func (u *upward) settings(f *frame) error {
	u.pass(f)
	if f.has(flagAck) {
		return nil
	}
	if err := f.settings(func(id uint16, v uint32) {
		if id == settingTableSize {
			u.down.allow(v)
		}
	}); err != nil {
		return err
	}
	u.backend.mu.Lock()
	defer u.backend.mu.Unlock()
	u.mu.Lock()
	u.acks = append(u.acks, nil)
	u.mu.Unlock()
	run := u.run
	u.run = nil
	return u.backend.writeLocked(run)
}

// headers reads a header block and holds the call it opens, where that is
// wanted.
func (u *upward) headers(f *frame) error {
	single := f.kind == typeHeaders && f.has(flagEndHeaders)
	first, fragment, raw, err := u.up.gather(f)
	if err != nil {
		return err
	}
	if first == nil { // more to come; kept until then
		return u.flush()
	}
	var h headers
	if err := u.up.read(fragment, &h); err != nil {
		return err
	}
	if u.opened(first, &h) {
		return u.flush()
	}
	if single {
		u.pass(f)
		return nil
	}
	if err := u.flush(); err != nil {
		return err
	}
	return u.backend.write(raw)
}

// opened takes note of a block. It reports whether the block is dropped, since
// its stream is beyond what the caller was told.
func (u *upward) opened(f *frame, h *headers) (dropped bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if f.stream <= u.last.Load() { // trailers, which gRPC does not know here
		if k := u.calls[f.stream]; k != nil && f.has(flagEndStream) {
			u.callerEnded(k)
		}
		return false
	}
	u.last.Store(f.stream)
	if u.closing && f.stream > u.limit {
		return true
	}
	if f.has(flagEndStream) {
		return false // a call without a message is nothing to hold
	}
	if held := u.o.Pick(h.path); held.Hook != nil {
		u.calls[f.stream] = &call{
			id: f.stream, hook: held.Hook, quick: held.Quick, encoding: h.encoding, flow: flow{avail: u.initial}, cancel: func() {},
		}
	}
	return false
}

// callerEnded notes the end of the caller's side; a call that is over is
// forgotten with it. The mutex is held.
func (u *upward) callerEnded(k *call) {
	k.callerDone = true
	if k.stage == over {
		delete(u.calls, k.id)
	}
}

// reset takes the caller's RST_STREAM. It reports whether the backend is to
// know: of a call it was told to forget, it knows.
func (u *upward) reset(stream uint32) bool {
	u.mu.Lock()
	k := u.calls[stream]
	delete(u.calls, stream)
	told := k != nil && (k.stage == refusing || k.stage == over && k.refusal != nil)
	u.mu.Unlock()
	if k != nil {
		u.finish(k, Outcome{})
	}
	return !told
}

// data passes or keeps a DATA frame.
func (u *upward) data(f *frame) error {
	u.mu.Lock()
	k := u.calls[f.stream]
	if k == nil || k.stage == flowing {
		u.mu.Unlock()
		return u.through(f, k)
	}
	if k.quick && k.stage == collecting && len(k.held) == 0 {
		k.quick = false
		u.mu.Unlock()
		if u.atOnce(k, f) {
			return u.through(f, k)
		}
		u.mu.Lock()
	}
	u.flow.hold(f.size())
	k.flow.hold(f.size())
	whole, err := u.keep(k, f)
	grants := u.grants(k)
	u.mu.Unlock()
	// The call's headers go before its message.
	err = errors.Join(err, u.flush(), u.caller.write(grants))
	if whole {
		u.start(k)
	}
	return err
}

// atOnce asks a quick hook about a message that is whole in one frame. It reports
// whether the frame goes on as it came. Otherwise nothing has happened: the call
// goes the way of all others.
func (u *upward) atOnce(k *call, f *frame) bool {
	body, err := f.body()
	if err != nil {
		return false
	}
	n, whole := messageSize(body)
	if !whole || n != len(body) || n > u.o.MaxMessage+prefixSize {
		return false
	}
	msg, err := open(body, k.encoding, u.o.MaxMessage)
	if err != nil {
		return false
	}
	v := k.hook(u.ctx, msg)
	if v.Refuse != nil || v.Message != nil || len(v.More) > 0 {
		k.hook = func(context.Context, []byte) Verdict { return v }
		return false
	}
	u.mu.Lock()
	going := k.stage == collecting
	if going {
		k.stage, k.sent, k.done = flowing, true, v.Done
	}
	u.mu.Unlock()
	if !going && v.Done != nil { // the backend has ended it already
		v.Done(Outcome{})
	}
	return going
}

// through passes a DATA frame, once the backend has room for it. It always has,
// unless a message was made longer or the caller was let go on while one was
// held.
func (u *upward) through(f *frame, k *call) error {
	n := f.size()
	room := func() bool {
		return n == 0 || u.dead || u.flow.takes(n) && (k == nil || k.flow.takes(n))
	}
	u.mu.Lock()
	if !room() { // what came before may be what the backend is waiting for
		u.mu.Unlock()
		if err := u.flush(); err != nil {
			return err
		}
		u.begin(f)
		u.mu.Lock()
		for !room() {
			u.changed.Wait()
		}
	}
	u.flow.pass(n)
	if k != nil {
		k.flow.pass(n)
		if f.has(flagEndStream) {
			u.callerEnded(k)
		}
	}
	u.mu.Unlock()
	u.pass(f)
	return nil
}

// keep takes the bytes of a frame into a held call. It reports whether the
// call's message is whole now. The mutex is held.
func (u *upward) keep(k *call, f *frame) (whole bool, err error) {
	body, err := f.body()
	if err != nil {
		return false, err
	}
	if f.has(flagEndStream) {
		defer u.callerEnded(k)
	}
	if k.stage == refusing || k.stage == over {
		return false, nil
	}
	if k.held == nil {
		k.room = u.roomFor(body)
		k.held = k.room
	}
	k.held = append(k.held, body...)
	if k.stage != collecting {
		return false, nil
	}
	n, whole := messageSize(k.held)
	if whole || f.has(flagEndStream) || n > u.o.MaxMessage+prefixSize {
		k.stage = deciding
		return true, nil
	}
	return false, nil
}

// roomFor is where a held message is kept, as large as it may become by its first
// bytes: itself and what a verdict adds. A size that was announced alone has to
// come yet. The mutex is held.
func (u *upward) roomFor(first []byte) []byte {
	n, _ := messageSize(first)
	n = max(len(first), min(n, bufferSize)) + verdictRoom
	if last := len(u.spare) - 1; last >= 0 && cap(u.spare[last]) >= n {
		room := u.spare[last]
		u.spare = u.spare[:last]
		return room
	}
	return make([]byte, 0, n)
}

// verdictRoom is what most verdicts add to a message, in bytes, and mostSpare how
// many rooms are kept for later.
const (
	verdictRoom = 1 << 10
	mostSpare   = 8
)

// grants tells the caller to go on sending where what is held has filled a
// window. A caller must not be kept from finishing a message by us. The mutex
// is held.
func (u *upward) grants(k *call) []byte {
	var out []byte
	if n := u.flow.grant(); n > 0 {
		out = appendWord(out, typeWindowUpdate, 0, n)
	}
	if k.stage == collecting {
		if n := k.flow.grant(); n > 0 {
			out = appendWord(out, typeWindowUpdate, k.id, n)
		}
	}
	return out
}

// start has the hook of a call asked, on a goroutine of its own.
func (u *upward) start(k *call) {
	ctx, cancel := context.WithCancel(u.ctx)
	u.mu.Lock()
	held := k.held
	n, complete := messageSize(held)
	k.cancel = cancel
	u.mu.Unlock()
	u.hooks.Go(func() {
		defer cancel()
		deepen()
		v := u.ask(ctx, k, held, n, complete)
		if v.Refuse != nil {
			u.refuse(k, v)
			return
		}
		if !complete {
			n = 0
		}
		u.release(k, v, n)
	})
}

// deepen makes room on the stack of a hook's goroutine at once. It starts with a
// small one, and would otherwise be moved to one of twice the size several
// times, each time with more calls on it. A decision with pools takes between
// 16 and 32 KiB.
//
//go:noinline
func deepen() {
	var room [24 << 10]byte
	touch(&room)
}

//go:noinline
func touch(room *[24 << 10]byte) { room[0] = 1 }

// ask opens the message and asks the hook. What cannot be opened passes.
func (u *upward) ask(ctx context.Context, k *call, held []byte, n int, complete bool) Verdict {
	if !complete || n > u.o.MaxMessage+prefixSize {
		return Verdict{}
	}
	msg, err := open(held[:n], k.encoding, u.o.MaxMessage)
	if err != nil {
		return Verdict{}
	}
	v := k.hook(ctx, msg)
	if v.Message == nil && len(v.More) > 0 && held[0] != 0 {
		v.Message = append(slices.Clip(msg), v.More...) // compressed: it is not
	}
	return v
}
