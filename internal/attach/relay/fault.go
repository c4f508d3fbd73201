package relay

import "errors"

// protocolError is a protocol error of one end, with its error code of RFC 9113. It ends the connection.
type protocolError struct {
	code uint32
	text string
}

func (f *protocolError) Error() string { return f.text }

// The faults.
var (
	errFrame = &protocolError{codeProtocol, "malformed frame"}
	errSize  = &protocolError{codeFrameSize, "frame of a wrong size"}
	errFlow  = &protocolError{codeFlowControl, "flow-control window above its maximum"}
	// errBlock means that the relay cannot decode a header block: after it the HPACK state is unknown.
	errBlock   = &protocolError{codeCompression, "header block cannot be read"}
	errTooMuch = &protocolError{codeEnhanceYourCalm, "above the limit of one connection"}
	errSlow    = &protocolError{codeEnhanceYourCalm, "sent the rest too late"}
)

// sendGoAway tells both ends why the connection ends, if the end that d reads from is at fault, and returns err.
func (c *Conn) sendGoAway(d *direction, err error) error {
	var f *protocolError
	if !errors.As(err, &f) {
		return err
	}
	c.caller.shortenTimeout()
	c.backend.shortenTimeout()
	// A write fails only if that end has already closed.
	if d.in == c.caller.in {
		_ = c.caller.write(appendGoAway(nil, c.last.Load(), f.code, err.Error()))
	} else {
		_ = c.backend.write(appendGoAway(nil, 0, f.code, err.Error()))
		_ = c.caller.write(appendGoAway(nil, c.last.Load(), codeInternal, "the server's connection ends: "+err.Error()))
	}
	return err
}
