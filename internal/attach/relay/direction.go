package relay

import (
	"errors"
	"fmt"
)

// direction is one of a connection's two.
type direction struct {
	c      *Conn
	in     *reader
	out    *side
	blocks *blocks
	run    []byte             // what of the reader's buffer goes on unchanged, and has not been written
	greet  func([]byte) error // writes the first frames, where that is not like all others
}

// relay passes on what comes in.
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
		if err != nil { // what came before goes on
			return d.c.protest(d, errors.Join(err, d.flush()))
		}
		if err := d.flush(); err != nil {
			return err
		}
		if err := d.in.fill(d.blocks.open.raw != nil); err != nil {
			return d.c.protest(d, err)
		}
	}
}

// pass adds a frame to the run: the frames that one write sends on. Frames follow each
// other in the buffer, so a run ends only at a frame that is not sent on.
func (d *direction) pass(f *frame) { d.run = d.run[:len(d.run)+len(f.raw)] }

// begin makes f the start of a run where there is none.
func (d *direction) begin(f *frame) {
	if len(d.run) == 0 {
		at := d.in.r - len(f.raw)
		d.run = d.in.buf[at:at]
	}
}

func (d *direction) flush() error {
	run, greet := d.run, d.greet
	d.run = nil
	if greet != nil && len(run) > 0 {
		d.greet = nil
		return greet(run)
	}
	return d.out.write(run)
}

// instead writes b where the frame under way would have gone.
func (d *direction) instead(b []byte) error {
	if err := d.flush(); err != nil {
		return err
	}
	d.run = b
	return d.flush()
}
