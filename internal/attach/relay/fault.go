package relay

import (
	"errors"

	"golang.org/x/net/http2"
)

// protocolError is a violation of the protocol or of a limit by the caller or the backend, with the error code of RFC
// 9113. It ends the connection.
type protocolError struct {
	code http2.ErrCode
	text string
}

func (f *protocolError) Error() string { return f.text }

// The protocol errors of the caller or the backend.
var (
	errFrame = &protocolError{http2.ErrCodeProtocol, "malformed frame"}
	errSize  = &protocolError{http2.ErrCodeFrameSize, "frame of a wrong size"}
	errFlow  = &protocolError{http2.ErrCodeFlowControl, "the flow-control window is too large"}
	// errBlock means that the relay cannot decode a header block. The connection cannot go on, because the HPACK state is
	// unknown afterwards.
	errBlock           = &protocolError{http2.ErrCodeCompression, "a header block cannot be decoded"}
	errConnectionLimit = &protocolError{http2.ErrCodeEnhanceYourCalm, "above a limit of trimtab for one connection"}
	errTooSlow         = &protocolError{http2.ErrCodeEnhanceYourCalm, "a frame or header block did not arrive in time"}
)

// sendGoAway sends GOAWAY frames with the reason, if err is a protocol error of the end from which d reads. The caller
// always gets such a frame. The backend gets one only if the backend caused the error. sendGoAway returns err.
func (c *Conn) sendGoAway(d *direction, err error) error {
	fault, atFault := errors.AsType[*protocolError](err)
	if !atFault {
		return err
	}
	c.caller.shortenTimeout()
	c.backend.shortenTimeout()
	// An error of these writes has no effect: the receiver has closed the connection or does not read.
	if d.in == c.caller.reader {
		_ = c.caller.write(appendGoAway(nil, c.highestStream.Load(), fault.code, err.Error()))
	} else {
		_ = c.backend.write(appendGoAway(nil, 0, fault.code, err.Error()))
		why := "trimtab closes this connection because of the server's frames: " + err.Error()
		_ = c.caller.write(appendGoAway(nil, c.highestStream.Load(), http2.ErrCodeInternal, why))
	}
	return err
}
