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

// handleHeaders handles a header block of the caller. If the block opens a call that the relay holds, it stores the
// call. dropped means that the stream is above the limit of the relay's GOAWAY. refused is a call that the relay must
// refuse.
func (c *Conn) handleHeaders(f *frame, h *headers) (refused *call, dropped bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := c.highestStream.Load(); f.stream <= last { // trailers of a request, which gRPC does not have
		if _, ok := c.streams.open[f.stream]; !ok && h.path != "" && f.stream < last {
			return nil, false, fmt.Errorf("%w: a request on stream %d, after stream %d", errFrame, f.stream, last)
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
		return nil, false, fmt.Errorf("%w: %d unfinished calls, or %d unacknowledged SETTINGS frames", errConnectionLimit, 2*maxStreams+maxRefused, 2*maxStreams)
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

// noteRefused stores a refused call, whose further frames the relay drops. If more than maxRefused calls are stored, it
// forgets the oldest call, because the caller may never end that call. The mutex is held.
func (c *Conn) noteRefused(k *call) {
	if c.streams.refused = append(c.streams.refused, k.id); len(c.streams.refused) > maxRefused {
		delete(c.calls, c.streams.refused[0])
		c.streams.refused = c.streams.refused[1:]
	}
}

// callerEnded notes that the caller has ended its side of a call. If the call has an answer, callerEnded forgets the
// call. The mutex is held.
func (c *Conn) callerEnded(k *call) {
	k.callerDone = true
	if k.stage == stageFinished {
		delete(c.calls, k.id)
	}
}

// handleReset handles the caller's RST_STREAM. It reports whether the relay forwards the frame. It returns false for a
// call that the relay itself has reset at the backend.
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

// hookInline runs a hook that returns at once, for a message that fits into one frame. If hookInline returns true, the
// relay forwards the frame unchanged. If it returns false, the relay holds the call like any other call. If the hook
// has then already decided to change or refuse the message, k.hook returns this verdict, so that the hook runs only
// once.
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
	going := k.stage == stageCollecting
	if going {
		k.stage, k.sent, k.onOutcome = stageForwarding, true, v.OnOutcome
	}
	c.mu.Unlock()
	if !going && v.OnOutcome != nil { // the backend has already ended the call
		v.OnOutcome(Outcome{})
	}
	return going
}

// hold stores the bytes of a held call's frame. ready reports whether the relay waits for no more bytes: the message is
// complete or too long, or the caller has ended its side. refusal says how to refuse the call. The mutex is held.
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

// dropHeldBytes drops the held bytes of a call. The bytes count as held until the call's hook has returned, because the
// hook may read them. The mutex is held.
func (c *Conn) dropHeldBytes(k *call) {
	k.held = nil
	if !k.hookRuns {
		c.usage.heldBytes -= k.countedBytes
		k.countedBytes = 0
	}
}

// hookReturned notes that a call's hook has returned, and that the call's bytes are sent or dropped.
func (c *Conn) hookReturned(k *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k.hookRuns = false
	c.usage.runningHooks--
	c.usage.heldBytes -= k.countedBytes
	k.countedBytes = 0
}

// storeReply stores bytes of the first message of the backend's answer. The mutex is held.
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

// bufferFor returns a buffer for a held message. The buffer has room for the size that the message's prefix announces,
// up to bufferSize, or for the first bytes if they are more, and for what most verdicts add. A caller cannot make the
// relay allocate more by announcing a larger size. The mutex is held.
func (c *Conn) bufferFor(first []byte) []byte {
	n, _ := messageSize(first)
	n = max(len(first), min(n, bufferSize)) + typicalVerdictSize
	if last := len(c.spareBuffers) - 1; last >= 0 && cap(c.spareBuffers[last]) >= n {
		room := c.spareBuffers[last]
		c.spareBuffers = c.spareBuffers[:last]
		return room
	}
	return make([]byte, 0, n)
}

// typicalVerdictSize is how many bytes most verdicts add to a message at most. maxSpareBuffers is how many buffers the
// relay keeps for reuse.
const (
	typicalVerdictSize = 1 << 10
	maxSpareBuffers    = 8
)

// windowUpdates returns the WINDOW_UPDATE frames with which the caller can go on sending when held bytes have filled a
// window. Without them, the caller could not complete its message. Before the backend's first frames, windowUpdates
// returns nothing, because callers do not accept a window update then. The mutex is held.
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

// runHook runs the hook of a call on its own goroutine, and then carries out the verdict.
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

// decide decompresses the message of a call and runs the hook. It returns an empty verdict for a message that is
// incomplete or too long, or that it cannot decompress.
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

// decompressMessage decompresses the message of a call. The decompressed message can be a thousand times longer. So the
// relay decompresses one message at a time, and counts the result as held bytes.
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

// callEnded handles the end of a held call by the backend. h has the trailers; nil if the backend sent none.
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
