package relay

import (
	"errors"
	"fmt"
)

// direction is one of a connection's two directions.
type direction struct {
	c         *Conn
	in        *reader
	out       *side
	blocks    *blocks
	run       []byte             // the part of the reader's buffer that the relay forwards unchanged
	sendFirst func([]byte) error // writes the first frames, if they need special treatment; else nil
}

// relay forwards what it reads.
func (d *direction) relay(take func(f *frame) error) error {
	var f frame
	for {
		more, err := d.in.next(&f)
		for ; more; more, err = d.in.next(&f) {
			if d.blocks.open.raw != nil && f.kind != typeContinuation {
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
		if err := d.in.fill(d.blocks.open.raw != nil); err != nil {
			return d.c.sendGoAway(d, err)
		}
	}
}

// pass adds a frame to the run: the frames that one write forwards. Frames are contiguous in the buffer, so a run
// ends only at a frame that the relay does not forward.
func (d *direction) pass(f *frame) { d.run = d.run[:len(d.run)+len(f.raw)] }

// begin makes f the start of a run if there is none.
func (d *direction) begin(f *frame) {
	if len(d.run) == 0 {
		at := d.in.r - len(f.raw)
		d.run = d.in.buf[at:at]
	}
}

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
