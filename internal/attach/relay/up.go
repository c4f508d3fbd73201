package relay

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/net/http2"
)

// toBackend is the direction from caller to backend.
type toBackend struct{ direction }

// relayUp forwards the caller's frames to the backend, until the connection ends. first has the bytes that the relay
// has already read from the caller: the client preface of HTTP/2.
func (c *Conn) relayUp(first []byte) error {
	u := &toBackend{direction{c: c, in: c.caller.reader, out: &c.backend, blocks: c.caller.blocks}}
	if err := c.backend.write(first); err != nil {
		return err
	}
	return u.relay(u.handleFrame)
}

// handleFrame handles one frame of the caller.
func (u *toBackend) handleFrame(f *frame) error {
	if u.dropsAfterGoAway(f) {
		return u.flush()
	}
	switch f.kind {
	case http2.FrameData:
		return u.handleData(f)
	case http2.FrameHeaders, http2.FramePushPromise, http2.FrameContinuation:
		return u.handleHeaders(f)
	case http2.FrameRSTStream:
		if !u.c.handleReset(f.stream) {
			return u.flush()
		}
	case http2.FrameSettings:
		return u.handleSettings(f)
	}
	u.addPending(f)
	return nil
}

// dropsAfterGoAway reports whether the relay drops a frame, because the frame's stream is above the limit of the
// relay's GOAWAY. The caller repeats the call of such a stream on another connection. dropsAfterGoAway returns false
// for frames of header blocks, because the relay must decode all header blocks.
func (u *toBackend) dropsAfterGoAway(f *frame) bool {
	if f.stream == 0 || f.beginsBlock() || f.kind == http2.FrameContinuation {
		return false
	}
	u.c.mu.Lock()
	defer u.c.mu.Unlock()
	if !u.c.drain.closing || f.stream <= u.c.drain.limit {
		return false
	}
	if f.kind == http2.FrameData {
		u.c.flow.hold(f.size())
	}
	return true
}

// handleSettings applies the caller's settings and forwards them. It adds an element for the frame to unackedSettings.
// When the backend acknowledges the frame, the relay then forwards the acknowledgement to the caller.
func (u *toBackend) handleSettings(f *frame) error {
	if f.hasFlag(http2.FlagSettingsAck) {
		u.addPending(f)
		return nil
	}
	if err := f.settings(u.handleSetting); err != nil {
		return err
	}
	u.addPending(f)
	u.out.mu.Lock()
	defer u.out.mu.Unlock()
	u.c.mu.Lock()
	u.c.unackedSettings = append(u.c.unackedSettings, nil)
	u.c.usage.callerUnacked++
	n := u.c.usage.callerUnacked
	u.c.mu.Unlock()
	if n > maxCallerUnacked {
		return fmt.Errorf("%w: %d SETTINGS frames that the backend has not acknowledged", errConnectionLimit, n)
	}
	frames := u.pendingFrames
	u.pendingFrames = nil
	return u.out.writeLocked(frames)
}

// handleHeaders decodes a header block. If the block opens a call that HandlingFor selects, the relay holds the call.
func (u *toBackend) handleHeaders(f *frame) error {
	single := f.beginsBlock() && f.hasFlag(http2.FlagHeadersEndHeaders)
	first, fragment, raw, err := u.blocks.gather(f)
	if err != nil {
		return err
	}
	if first == nil { // the block is incomplete; gather has stored it until the rest arrives
		return u.flush()
	}
	var h headers
	if err := u.blocks.read(fragment, &h); err != nil {
		return err
	}
	var k *call
	if first.kind == http2.FrameHeaders {
		var dropped bool
		if k, dropped, err = u.c.handleHeaders(first, &h); err != nil || dropped {
			return errors.Join(err, u.flush())
		}
	}
	if single {
		u.addPending(f)
	} else if err := u.writeInstead(raw); err != nil {
		return err
	}
	if k != nil { // the relay has forwarded the block of a refused call, because later blocks may refer to its table entries
		err = u.flush()
		u.c.refuse(k, Verdict{Refuse: k.refusal})
	}
	return err
}

// handleData forwards or holds a DATA frame.
func (u *toBackend) handleData(f *frame) error {
	u.c.mu.Lock()
	k := u.c.calls[f.stream]
	if f.hasFlag(http2.FlagDataEndStream) {
		u.c.streams.end(f.stream, callerEnd)
	}
	if k == nil || k.stage == stageForwarding {
		u.c.mu.Unlock()
		return u.forward(f, k)
	}
	if k.mayRunInline && k.stage == stageCollecting && len(k.held) == 0 {
		k.mayRunInline = false
		u.c.mu.Unlock()
		if u.c.hookInline(k, f) {
			return u.forward(f, k)
		}
		u.c.mu.Lock()
	}
	u.c.flow.hold(f.size())
	k.flow.hold(f.size())
	ready, refusal, err := u.c.hold(k, f)
	grants := u.c.windowUpdates(k)
	u.c.mu.Unlock()
	// Flush before the hook runs, because the backend must get the call's headers before its message.
	err = errors.Join(err, u.flush(), u.c.caller.write(grants))
	switch {
	case refusal != nil:
		u.c.refuse(k, Verdict{Refuse: refusal})
	case ready:
		u.c.runHook(k)
	}
	return err
}

// forward forwards a DATA frame. It first waits until the backend's window allows the frame. It must wait only if a
// verdict has made a message longer, or if the relay has enlarged the caller's window while the relay held a message.
func (u *toBackend) forward(f *frame, k *call) error {
	n := f.size()
	room := func() bool {
		return n == 0 || u.c.closed || u.c.flow.maySend(n) && (k == nil || k.flow.maySend(n))
	}
	u.c.mu.Lock()
	if !room() { // the backend may be waiting for the earlier frames
		u.c.mu.Unlock()
		if err := u.flush(); err != nil {
			return err
		}
		u.startPending(f)
		u.c.mu.Lock()
		if err := u.awaitWindow(room); err != nil {
			u.c.mu.Unlock()
			err = fmt.Errorf("wait until the backend accepts %d more bytes: %w", n, err)
			u.c.writeFailed("backend", err)
			return err
		}
	}
	u.c.flow.count(n)
	if k != nil {
		k.flow.count(n)
		if f.hasFlag(http2.FlagDataEndStream) {
			u.c.callerEnded(k)
		}
	}
	u.c.mu.Unlock()
	u.addPending(f)
	return nil
}

// awaitWindow waits until room returns true, or returns an error after WriteTimeout. The mutex is held.
func (u *toBackend) awaitWindow(room func() bool) error {
	late := false
	timer := time.AfterFunc(u.c.o.WriteTimeout, func() {
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
