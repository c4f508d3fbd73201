package relay

import (
	"errors"
	"fmt"

	"golang.org/x/net/http2"
)

// direction is one of a connection's two directions: from the caller to the backend, or back.
type direction struct {
	c             *Conn
	in            *reader            // reads the frames of the sender
	out           *endpoint          // the receiver
	blocks        *blocks            // decodes the header blocks of the sender
	pendingFrames []byte             // the frames in the reader's buffer that the next flush forwards unchanged
	sendFirst     func([]byte) error // writes the backend's first frames to the caller; nil after them, and in the other direction
}

// relay reads frames and calls handle for each frame, until the connection ends. It returns the error that ended the
// connection.
func (d *direction) relay(handle func(f *frame) error) error {
	var f frame
	for {
		more, err := d.in.next(&f)
		for ; more; more, err = d.in.next(&f) {
			if d.blocks.partial.raw != nil && f.kind != http2.FrameContinuation {
				err = fmt.Errorf("%w: a frame that is not CONTINUATION inside a header block", errFrame)
				break
			}
			d.startPending(&f)
			if err = handle(&f); err != nil {
				break
			}
		}
		if err != nil { // flush sends the frames before the frame with the error
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

// addPending adds a frame to pendingFrames. One write forwards all pending frames, so they must be contiguous in the
// reader's buffer. Therefore the handler calls flush at each frame that the relay does not forward.
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
	frames, sendFirst := d.pendingFrames, d.sendFirst
	d.pendingFrames = nil
	if sendFirst != nil && len(frames) > 0 {
		d.sendFirst = nil
		return sendFirst(frames)
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

// handleSetting handles one setting in a SETTINGS frame, and returns the value that the relay forwards. Two settings
// limit the header tables and the frames that the receiver of the SETTINGS frame may send. handleSetting notes these
// two limits, so that the relay can read what the receiver sends.
func (d *direction) handleSetting(id http2.SettingID, v uint32) uint32 {
	switch v = limitSetting(id, v); id {
	case http2.SettingHeaderTableSize:
		d.out.blocks.allowTableSize(v)
	case http2.SettingMaxFrameSize:
		d.out.reader.allowFrameSize(v)
	}
	return v
}
