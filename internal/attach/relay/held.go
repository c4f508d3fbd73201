package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"

	"github.com/trimtab/trimtab/internal/attach/workerpool"
)

// handleHeaders handles a header block of the caller. If the block opens a call that the relay holds, handleHeaders
// stores the call. refused is a call that the relay must refuse. dropped means that the relay does not forward the
// block, because its stream is above the limit of the relay's GOAWAY.
func (c *Conn) handleHeaders(f *frame, h *headers) (refused *call, dropped bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := c.highestStream.Load(); f.stream <= last { // not a new stream: trailers of a request, which gRPC does not have
		if _, ok := c.streams.open[f.stream]; !ok && h.path != "" && f.stream < last {
			return nil, false, fmt.Errorf("%w: a new request on stream %d, although stream %d was opened before", errFrame, f.stream, last)
		}
		if f.hasFlag(http2.FlagDataEndStream) {
			c.streams.end(f.stream, callerEnd)
			if k := c.calls[f.stream]; k != nil {
				c.callerEnded(k)
			}
		}
		return nil, false, nil
	}
	c.highestStream.Store(f.stream)
	if c.drain.closing && f.stream > c.drain.limit {
		return nil, true, nil
	}
	switch {
	case c.streams.goingAway && f.stream > c.streams.lastStream: // the backend ignores the call, and the caller repeats it on another connection
		return nil, false, nil
	case len(c.calls) >= 2*maxStreams+maxRefused || len(c.unackedSettings)-c.usage.callerUnacked >= 2*maxStreams:
		return nil, false, fmt.Errorf("%w: %d unfinished calls, or %d SETTINGS frames that the backend has not acknowledged",
			errConnectionLimit, 2*maxStreams+maxRefused, 2*maxStreams)
	case len(c.streams.open) >= maxStreams || c.usage.runningHooks >= maxStreams:
		k := c.newCall(f.stream, h)
		k.refusal, k.callerDone = tooManyCalls, f.hasFlag(http2.FlagDataEndStream)
		return k, false, nil
	case f.hasFlag(http2.FlagDataEndStream): // a call without a message is not held
		c.streams.open[f.stream] = callerEnd
		return nil, false, nil
	}
	c.streams.open[f.stream] = 0
	if held := c.o.HandlingFor(h.path); held.Hook != nil {
		k := c.newCall(f.stream, h)
		k.hook, k.mayRunInline = held.Hook, held.RunsInline
	}
	return nil, false, nil
}

// newCall stores a new call. The mutex is held.
func (c *Conn) newCall(stream uint32, h *headers) *call {
	k := &call{id: stream, encoding: h.encoding, flow: flow{window: c.initialWindow}, cancel: func() {}}
	c.calls[stream] = k
	return k
}

// noteRefused notes a refused call that stays in calls, so that the relay drops further frames of the call. If more
// than maxRefused calls are noted, noteRefused removes the oldest call from calls, because a caller possibly never ends
// such a call. The mutex is held.
func (c *Conn) noteRefused(k *call) {
	if c.streams.refused = append(c.streams.refused, k.id); len(c.streams.refused) > maxRefused {
		delete(c.calls, c.streams.refused[0])
		c.streams.refused = c.streams.refused[1:]
	}
}

// callerEnded notes that the caller has ended its side of a call. If the call is already answered or cancelled,
// callerEnded removes it from calls. The mutex is held.
func (c *Conn) callerEnded(k *call) {
	k.callerDone = true
	if k.stage == stageFinished {
		delete(c.calls, k.id)
	}
}

// handleReset handles the caller's RST_STREAM. It reports whether the relay must forward the frame to the backend. It
// returns false for a call that the relay itself has reset at the backend.
func (c *Conn) handleReset(stream uint32) bool {
	c.mu.Lock()
	k := c.calls[stream]
	delete(c.calls, stream)
	c.streams.close(stream)
	reset := k != nil && (k.stage == stageRefusing || k.stage == stageFinished && k.refusal != nil)
	c.mu.Unlock()
	if k != nil {
		c.finish(k, Outcome{})
	}
	return !reset
}

// hookInline runs the hook of a call on the goroutine that reads from the caller. It does so only if the frame f has
// the whole message. If hookInline returns true, the relay forwards the frame unchanged. If it returns false, the relay
// holds the call, and k.hook runs later on another goroutine. If the hook has decided to change or refuse the message,
// hookInline returns false and sets k.hook to a function that returns this verdict. So the hook itself runs only once.
func (c *Conn) hookInline(k *call, f *frame) bool {
	body, err := f.body()
	if err != nil {
		return false
	}
	n, whole := messageSize(body)
	if !whole || n != len(body) || n > c.o.MaxMessage+prefixSize {
		return false
	}
	msg, err := decompress(body, k.encoding, c.o.MaxMessage)
	if err != nil {
		return false
	}
	v := k.hook(c.ctx, msg)
	if v.Refuse != nil || v.Message != nil || len(v.Appended) > 0 {
		k.hook = func(context.Context, []byte) Verdict { return v }
		return false
	}
	c.mu.Lock()
	unfinished := k.stage == stageCollecting
	if unfinished {
		k.stage, k.sent, k.onOutcome = stageForwarding, true, v.OnOutcome
	}
	c.mu.Unlock()
	if !unfinished && v.OnOutcome != nil { // the backend has already ended the call
		v.OnOutcome(Outcome{})
	}
	return unfinished
}

// hold stores the bytes of a held call's DATA frame. ready means that the hook can run: the message is complete or too
// long, or the caller has ended its side. If refusal is not nil, the relay must refuse the call with this status. The
// mutex is held.
func (c *Conn) hold(k *call, f *frame) (ready bool, refusal *Status, err error) {
	body, err := f.body()
	if err != nil {
		return false, nil, err
	}
	if f.hasFlag(http2.FlagDataEndStream) {
		defer c.callerEnded(k)
	}
	if k.stage == stageRefusing || k.stage == stageFinished {
		return false, nil, nil
	}
	if c.usage.heldBytes+len(body) > maxHeldBytes {
		return false, tooManyBytes, nil
	}
	c.usage.heldBytes, k.countedBytes = c.usage.heldBytes+len(body), k.countedBytes+len(body)
	if k.held == nil {
		k.buf = c.bufferFor(body)
		k.held = k.buf
	}
	k.held = append(k.held, body...)
	if k.stage != stageCollecting {
		return false, nil, nil
	}
	n, complete := messageSize(k.held)
	if complete || f.hasFlag(http2.FlagDataEndStream) || n > c.o.MaxMessage+prefixSize {
		k.stage = stageDeciding
		return true, nil, nil
	}
	return false, nil, nil
}

// dropHeldBytes drops the held bytes of a call. If the call's hook still runs, usage.heldBytes counts these bytes until
// the hook has returned, because the hook can still read them. The mutex is held.
func (c *Conn) dropHeldBytes(k *call) {
	k.held = nil
	if !k.hookRuns {
		c.usage.heldBytes -= k.countedBytes
		k.countedBytes = 0
	}
}

// hookReturned notes that a call's hook has returned, and that the call's held bytes have been sent or dropped.
func (c *Conn) hookReturned(k *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k.hookRuns = false
	c.usage.runningHooks--
	c.usage.heldBytes -= k.countedBytes
	k.countedBytes = 0
}

// storeReply stores bytes of the first message of the backend's answer. If the bytes exceed a limit, it drops the whole
// message and sets replyLost. The mutex is held.
func (c *Conn) storeReply(k *call, b []byte) {
	if k.replyLost || k.stage == stageFinished {
		return
	}
	if n, whole := messageSize(k.reply); whole && len(k.reply) >= n {
		return
	}
	if len(k.reply)+len(b) > c.o.MaxMessage || c.usage.heldBytes+len(b) > maxHeldBytes {
		c.usage.heldBytes -= len(k.reply)
		k.reply, k.replyLost = nil, true
		return
	}
	c.usage.heldBytes += len(b)
	k.reply = append(k.reply, b...)
}

// bufferFor returns an empty buffer for a held message that begins with the bytes first. The buffer has room for these
// bytes, for the size that the message's prefix announces (at most bufferSize), and for the bytes that most verdicts
// add. So a caller that announces a huge message does not make the relay allocate a huge buffer. The mutex is held.
func (c *Conn) bufferFor(first []byte) []byte {
	n, _ := messageSize(first)
	n = max(len(first), min(n, bufferSize)) + typicalVerdictSize
	if last := len(c.spareBuffers) - 1; last >= 0 && cap(c.spareBuffers[last]) >= n {
		spare := c.spareBuffers[last]
		c.spareBuffers = c.spareBuffers[:last]
		return spare
	}
	return make([]byte, 0, n)
}

// Most verdicts add at most typicalVerdictSize bytes to a message. The relay stores at most maxSpareBuffers buffers of
// a connection for reuse.
const (
	typicalVerdictSize = 1 << 10
	maxSpareBuffers    = 8
)

// windowUpdates returns the relay's own WINDOW_UPDATE frames for the caller. With them, the caller can complete its
// message although held bytes fill a window. A caller accepts no window update before the backend's first frames. Until
// these are sent, windowUpdates returns nothing. The mutex is held.
func (c *Conn) windowUpdates(k *call) []byte {
	var out []byte
	if !c.drain.firstFramesSent {
		return nil
	}
	if n := c.flow.grant(); n > 0 {
		out = appendWord(out, http2.FrameWindowUpdate, 0, n)
	}
	if k.stage == stageCollecting {
		if n := k.flow.grant(); n > 0 {
			out = appendWord(out, http2.FrameWindowUpdate, k.id, n)
		}
	}
	return out
}

// runHook runs the hook of a call on another goroutine. After the hook, this goroutine forwards or refuses the call, as
// the hook's verdict says.
func (c *Conn) runHook(k *call) {
	ctx, cancel := context.WithCancel(c.ctx)
	c.mu.Lock()
	held := k.held
	n, complete := messageSize(held)
	k.cancel = cancel
	k.hookRuns = true
	c.usage.runningHooks++
	c.mu.Unlock()
	c.hooks.Go(func() {
		defer cancel()
		defer c.hookReturned(k)
		workerpool.GrowStack()
		v := c.decide(ctx, k, held, n, complete)
		if v.Refuse != nil {
			c.refuse(k, v)
			return
		}
		if !complete {
			n = 0
		}
		c.forwardHeld(k, v, n)
	})
}

// decide decompresses the message of a call, runs the hook, and returns the verdict. n is the size of the message in
// held. If the message is incomplete or too long, or decompression fails, decide returns an empty verdict, with which
// the relay forwards the message unchanged. If the decompressed message does not fit into maxHeldBytes, the verdict
// refuses the call.
func (c *Conn) decide(ctx context.Context, k *call, held []byte, n int, complete bool) Verdict {
	if !complete || n > c.o.MaxMessage+prefixSize {
		return Verdict{}
	}
	msg, err := c.decompressMessage(k, held[:n])
	switch {
	case errors.Is(err, errConnectionLimit):
		return Verdict{Refuse: tooManyBytes}
	case err != nil:
		return Verdict{}
	}
	v := k.hook(ctx, msg)
	if v.Message == nil && len(v.Appended) > 0 && held[0] != 0 {
		v.Message = append(slices.Clip(msg), v.Appended...) // bytes cannot be appended to a compressed message
	}
	return v
}

// decompressMessage decompresses the message of a call. The result can be a thousand times longer than the message. So
// the relay decompresses only one message of the connection at a time, and counts the result as held bytes.
func (c *Conn) decompressMessage(k *call, b []byte) ([]byte, error) {
	if b[0] != 0 {
		c.decompressing.Lock()
		defer c.decompressing.Unlock()
	}
	msg, err := decompress(b, k.encoding, c.o.MaxMessage)
	if err != nil || b[0] == 0 {
		return msg, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.usage.heldBytes+len(msg) > maxHeldBytes {
		return nil, errConnectionLimit
	}
	c.usage.heldBytes, k.countedBytes = c.usage.heldBytes+len(msg), k.countedBytes+len(msg)
	return msg, nil
}

// callEnded finishes a held call that the backend has ended. h has the trailers; it is nil if the backend sent none.
func (c *Conn) callEnded(k *call, h *headers) {
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
