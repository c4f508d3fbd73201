package relay

import (
	"errors"
	"fmt"

	"golang.org/x/net/http2"
)

// direction is one of a connection's two directions.
type direction struct {
	c         *Conn
	in        *reader
	out       *endpoint
	blocks    *blocks
	run       []byte             // the part of the reader's buffer that the relay forwards unchanged
	sendFirst func([]byte) error // writes the first frames, if they need special treatment; else nil
}

// relay reads frames and calls take for each of them, until the connection ends. It then returns the error.
func (d *direction) relay(take func(f *frame) error) error {
	var f frame
	for {
		more, err := d.in.next(&f)
		for ; more; more, err = d.in.next(&f) {
			if d.blocks.partial.raw != nil && f.kind != http2.FrameContinuation {
				err = fmt.Errorf("%w: header block interrupted", errFrame)
				break
			}
			d.begin(&f)
			if err = take(&f); err != nil {
				break
			}
		}
		if err != nil { // send the frames before it
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

// pass adds a frame to the run, which one write forwards. Frames are contiguous in the buffer, so a run ends only
// at a frame that the relay does not forward.
func (d *direction) pass(f *frame) { d.run = d.run[:len(d.run)+len(f.raw)] }

// begin makes f the start of a run if there is none.
func (d *direction) begin(f *frame) {
	if len(d.run) == 0 {
		at := d.in.r - len(f.raw)
		d.run = d.in.buf[at:at]
	}
}

// flush writes the run.
func (d *direction) flush() error {
	run, greet := d.run, d.sendFirst
	d.run = nil
	if greet != nil && len(run) > 0 {
		d.sendFirst = nil
		return greet(run)
	}
	return d.out.write(run)
}

// replace writes b in place of the current frame.
func (d *direction) replace(b []byte) error {
	if err := d.flush(); err != nil {
		return err
	}
	d.run = b
	return d.flush()
}

// setting notes what a setting of the sender allows the other end to send, and returns the value to pass on.
func (d *direction) setting(id http2.SettingID, v uint32) uint32 {
	switch v = limitSetting(id, v); id {
	case http2.SettingHeaderTableSize:
		d.out.blocks.allow(v)
	case http2.SettingMaxFrameSize:
		d.out.reader.allow(v)
	}
	return v
}
