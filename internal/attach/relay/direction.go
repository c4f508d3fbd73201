package relay

import (
	"errors"
	"fmt"

	"golang.org/x/net/http2"
)

// direction is one of a connection's two directions: from the caller to the backend, or back.
type direction struct {
	c             *Conn
	in            *reader
	out           *endpoint
	blocks        *blocks
	pendingFrames []byte             // the frames in the reader's buffer that the next flush forwards unchanged
	sendFirst     func([]byte) error // writes the first frames if they need special treatment; nil after that
}

// relay reads frames and calls handle for each frame, until the connection ends. It then returns the error.
func (d *direction) relay(handle func(f *frame) error) error {
	var f frame
	for {
		more, err := d.in.next(&f)
		for ; more; more, err = d.in.next(&f) {
			if d.blocks.partial.raw != nil && f.kind != http2.FrameContinuation {
				err = fmt.Errorf("%w: header block interrupted", errFrame)
				break
			}
			d.startPending(&f)
			if err = handle(&f); err != nil {
				break
			}
		}
		if err != nil { // first send the frames before the error
			return d.c.sendGoAway(d, errors.Join(err, d.flush()))
		}
		if err := d.flush(); err != nil {
			return err
		}
		if err := d.in.fill(d.blocks.partial.raw != nil); err != nil {
			return d.c.sendGoAway(d, err)
		}
	}
}

// addPending adds a frame to pendingFrames, which one write forwards. The frames are contiguous in the reader's buffer,
// so frames are pending only up to the first frame that the relay does not forward.
func (d *direction) addPending(f *frame) {
	d.pendingFrames = d.pendingFrames[:len(d.pendingFrames)+len(f.raw)]
}

// startPending makes pendingFrames begin at the frame f if no frame is pending.
func (d *direction) startPending(f *frame) {
	if len(d.pendingFrames) == 0 {
		at := d.in.r - len(f.raw)
		d.pendingFrames = d.in.buf[at:at]
	}
}

// flush writes the pending frames.
func (d *direction) flush() error {
	frames, greet := d.pendingFrames, d.sendFirst
	d.pendingFrames = nil
	if greet != nil && len(frames) > 0 {
		d.sendFirst = nil
		return greet(frames)
	}
	return d.out.write(frames)
}

// writeInstead writes the pending frames, and then b in place of the current frame.
func (d *direction) writeInstead(b []byte) error {
	if err := d.flush(); err != nil {
		return err
	}
	d.pendingFrames = b
	return d.flush()
}

// setting handles a setting in a SETTINGS frame. It notes what the setting allows the receiver of the frame to send,
// and returns the value that the relay forwards.
func (d *direction) setting(id http2.SettingID, v uint32) uint32 {
	switch v = limitSetting(id, v); id {
	case http2.SettingHeaderTableSize:
		d.out.blocks.allowTableSize(v)
	case http2.SettingMaxFrameSize:
		d.out.reader.allowFrameSize(v)
	}
	return v
}
