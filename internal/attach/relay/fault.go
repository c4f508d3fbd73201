package relay

import "errors"

// fault is what one end did that ends its connection, with the code of RFC 9113 that
// says so.
type fault struct {
	code uint32
	text string
}

func (f *fault) Error() string { return f.text }

// The faults of an end.
var (
	errFrame = &fault{codeProtocol, "malformed frame"}
	errSize  = &fault{codeFrameSize, "frame of a wrong size"}
	errFlow  = &fault{codeFlowControl, "flow-control window above its maximum"}
	// errBlock marks a header block that cannot be read: after it the state of the
	// compression is unknown.
	errBlock = &fault{codeCompression, "header block cannot be read"}
	errCalm  = &fault{codeCalm, "more than one connection may have"}
	errSlow  = &fault{codeCalm, "sent the rest too late"}
)

// protest tells both ends why the connection ends, where the end that d reads from is at
// fault, and returns err.
func (c *Conn) protest(d *direction, err error) error {
	var f *fault
	if !errors.As(err, &f) {
		return err
	}
	c.caller.hurry()
	c.backend.hurry()
	// A failure to write is that of an end which is gone already.
	if d.in == c.caller.in {
		_ = c.caller.write(appendGoAway(nil, c.last.Load(), f.code, err.Error()))
	} else {
		_ = c.backend.write(appendGoAway(nil, 0, f.code, err.Error()))
		_ = c.caller.write(appendGoAway(nil, c.last.Load(), codeInternal, "the server's connection ends: "+err.Error()))
	}
	return err
}
