package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/grpc/codes"
)

// opened records a header block of the caller. dropped says that its stream is beyond the
// last one of the relay's GOAWAY. refused is a call that the relay must refuse.
func (c *Conn) opened(f *frame, h *headers) (refused *call, dropped bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := c.last.Load(); f.stream <= last { // trailers, which gRPC does not know here
		if _, ok := c.streams.open[f.stream]; !ok && h.path != "" && f.stream < last {
			return nil, false, fmt.Errorf("%w: a request on stream %d, after stream %d", errFrame, f.stream, last)
		}
		if f.has(flagEndStream) {
			c.streams.end(f.stream, callerEnd)
			if k := c.calls[f.stream]; k != nil {
				c.callerEnded(k)
			}
		}
		return nil, false, nil
	}
	c.last.Store(f.stream)
	if c.drain.closing && f.stream > c.drain.limit {
		return nil, true, nil
	}
	switch {
	case c.streams.leaving && f.stream > c.streams.most: // no call: its caller makes it again elsewhere
		return nil, false, nil
	case len(c.calls) >= 2*maxStreams+maxRefused || len(c.acks)-c.use.unanswered >= 2*maxStreams:
		return nil, false, fmt.Errorf("%w: %d calls beside those that were refused", errCalm, maxStreams)
	case len(c.streams.open) >= maxStreams || c.use.asked >= maxStreams:
		k := c.newCall(f.stream, h)
		k.refusal, k.callerDone = busy, f.has(flagEndStream)
		return k, false, nil
	case f.has(flagEndStream): // a call without a message is nothing to hold
		c.streams.open[f.stream] = callerEnd
		return nil, false, nil
	}
	c.streams.open[f.stream] = 0
	if held := c.o.Pick(h.path); held.Hook != nil {
		k := c.newCall(f.stream, h)
		k.hook, k.quick = held.Hook, held.Quick
	}
	return nil, false, nil
}

func (c *Conn) newCall(stream uint32, h *headers) *call {
	k := &call{id: stream, encoding: h.encoding, flow: flow{avail: c.initial}, cancel: func() {}}
	c.calls[stream] = k
	return k
}

// remember keeps a refused call, what still comes of which is dropped, in place of the oldest
// one. Its caller may never say that it has ended. The mutex is held.
func (c *Conn) remember(k *call) {
	if c.streams.refused = append(c.streams.refused, k.id); len(c.streams.refused) > maxRefused {
		delete(c.calls, c.streams.refused[0])
		c.streams.refused = c.streams.refused[1:]
	}
}

// callerEnded notes the end of the caller's side; a call that is over is
// forgotten with it. The mutex is held.
func (c *Conn) callerEnded(k *call) {
	k.callerDone = true
	if k.stage == over {
		delete(c.calls, k.id)
	}
}

// reset takes the caller's RST_STREAM. It reports whether to pass it to the backend:
// not for a call that the relay has reset there itself.
func (c *Conn) reset(stream uint32) bool {
	c.mu.Lock()
	k := c.calls[stream]
	delete(c.calls, stream)
	c.streams.close(stream)
	reset := k != nil && (k.stage == refusing || k.stage == over && k.refusal != nil)
	c.mu.Unlock()
	if k != nil {
		c.finish(k, Outcome{})
	}
	return !reset
}

// atOnce asks a quick hook about a message that is whole in one frame. It reports
// whether the frame goes on as it came. Otherwise nothing has happened: the call
// goes the way of all others.
func (c *Conn) atOnce(k *call, f *frame) bool {
	body, err := f.body()
	if err != nil {
		return false
	}
	n, whole := messageSize(body)
	if !whole || n != len(body) || n > c.o.MaxMessage+prefixSize {
		return false
	}
	msg, err := open(body, k.encoding, c.o.MaxMessage)
	if err != nil {
		return false
	}
	v := k.hook(c.ctx, msg)
	if v.Refuse != nil || v.Message != nil || len(v.More) > 0 {
		k.hook = func(context.Context, []byte) Verdict { return v }
		return false
	}
	c.mu.Lock()
	going := k.stage == collecting
	if going {
		k.stage, k.sent, k.done = flowing, true, v.Done
	}
	c.mu.Unlock()
	if !going && v.Done != nil { // the backend has ended it already
		v.Done(Outcome{})
	}
	return going
}

// keep takes the bytes of a frame into a held call. It reports whether the
// call's message is whole now, or what the call is to be refused with. The mutex is held.
func (c *Conn) keep(k *call, f *frame) (whole bool, refusal *Status, err error) {
	body, err := f.body()
	if err != nil {
		return false, nil, err
	}
	if f.has(flagEndStream) {
		defer c.callerEnded(k)
	}
	if k.stage == refusing || k.stage == over {
		return false, nil, nil
	}
	if c.use.kept+len(body) > maxKept {
		return false, full, nil
	}
	c.use.kept, k.kept = c.use.kept+len(body), k.kept+len(body)
	if k.held == nil {
		k.room = c.roomFor(body)
		k.held = k.room
	}
	k.held = append(k.held, body...)
	if k.stage != collecting {
		return false, nil, nil
	}
	n, whole := messageSize(k.held)
	if whole || f.has(flagEndStream) || n > c.o.MaxMessage+prefixSize {
		k.stage = deciding
		return true, nil, nil
	}
	return false, nil, nil
}

// forget drops what a call holds; the bytes count until its hook has returned, which may
// read them. The mutex is held.
func (c *Conn) forget(k *call) {
	k.held = nil
	if !k.asked {
		c.use.kept -= k.kept
		k.kept = 0
	}
}

// returned notes that a call's hook has returned, and all it held is sent or dropped.
func (c *Conn) returned(k *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k.asked = false
	c.use.asked--
	c.use.kept -= k.kept
	k.kept = 0
}

// answer collects a frame of the backend's first message. The mutex is held.
func (c *Conn) answer(k *call, b []byte) {
	if k.replyLost || k.stage == over {
		return
	}
	if n, whole := messageSize(k.reply); whole && len(k.reply) >= n {
		return
	}
	if len(k.reply)+len(b) > c.o.MaxMessage || c.use.kept+len(b) > maxKept {
		c.use.kept -= len(k.reply)
		k.reply, k.replyLost = nil, true
		return
	}
	c.use.kept += len(b)
	k.reply = append(k.reply, b...)
}

// roomFor is where a held message is kept, as large as it may become by its first
// bytes: itself and what a verdict adds. A size that was announced alone has to
// come yet. The mutex is held.
func (c *Conn) roomFor(first []byte) []byte {
	n, _ := messageSize(first)
	n = max(len(first), min(n, bufferSize)) + verdictRoom
	if last := len(c.spare) - 1; last >= 0 && cap(c.spare[last]) >= n {
		room := c.spare[last]
		c.spare = c.spare[:last]
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
// window. A caller must not be kept from finishing a message by us. Before the
// backend's first frames it takes none. The mutex is held.
func (c *Conn) grants(k *call) []byte {
	var out []byte
	if !c.drain.greeted {
		return nil
	}
	if n := c.flow.grant(); n > 0 {
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
func (c *Conn) start(k *call) {
	ctx, cancel := context.WithCancel(c.ctx)
	c.mu.Lock()
	held := k.held
	n, complete := messageSize(held)
	k.cancel = cancel
	k.asked = true
	c.use.asked++
	c.mu.Unlock()
	c.hooks.Go(func() {
		defer cancel()
		defer c.returned(k)
		deepen()
		v := c.ask(ctx, k, held, n, complete)
		if v.Refuse != nil {
			c.refuse(k, v)
			return
		}
		if !complete {
			n = 0
		}
		c.release(k, v, n)
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
func (c *Conn) ask(ctx context.Context, k *call, held []byte, n int, complete bool) Verdict {
	if !complete || n > c.o.MaxMessage+prefixSize {
		return Verdict{}
	}
	msg, err := c.message(k, held[:n])
	switch {
	case errors.Is(err, errCalm):
		return Verdict{Refuse: full}
	case err != nil:
		return Verdict{}
	}
	v := k.hook(ctx, msg)
	if v.Message == nil && len(v.More) > 0 && held[0] != 0 {
		v.Message = append(slices.Clip(msg), v.More...) // compressed: it is not
	}
	return v
}

// message opens the message of a call. A compressed one can be a thousand times longer than
// it was, so one is opened at a time, and counts as all that is held.
func (c *Conn) message(k *call, b []byte) ([]byte, error) {
	if b[0] != 0 {
		c.opening.Lock()
		defer c.opening.Unlock()
	}
	msg, err := open(b, k.encoding, c.o.MaxMessage)
	if err != nil || b[0] == 0 {
		return msg, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.use.kept+len(msg) > maxKept {
		return nil, errCalm
	}
	c.use.kept, k.kept = c.use.kept+len(msg), k.kept+len(msg)
	return msg, nil
}

// refuses reports whether a call's refusal is on its way.
func (c *Conn) refuses(k *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return k.stage == refusing
}

func (c *Conn) known(stream uint32) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[stream]
}

// ended notes that the backend has ended a held call.
func (c *Conn) ended(k *call, h *headers) {
	c.mu.Lock()
	o := k.outcome(c.o.MaxMessage)
	if k.callerDone {
		delete(c.calls, k.id)
	}
	c.mu.Unlock()
	if h != nil {
		if n, err := strconv.ParseUint(h.status, 10, 32); err == nil {
			o.Answered, o.Code = true, codes.Code(n)
		}
	}
	c.finish(k, o)
}
