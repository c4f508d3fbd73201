package relay

import (
	"context"

	"google.golang.org/grpc/codes"
)

// Hook decides one held call before the backend gets its message. It gets the message
// uncompressed and without its prefix, may keep it only until it returns, and must not
// panic. Its context ends when the caller cancels the call, when the call is answered,
// or with the connection.
type Hook func(ctx context.Context, msg []byte) Verdict

// Held says how a call is held. The zero Held passes it.
type Held struct {
	// Hook runs on its own goroutine and may block, unless Quick is set.
	Hook Hook
	// Quick: the hook returns at once. The goroutine that reads the connection may run it;
	// the message is then forwarded together with the frames around it.
	Quick bool
}

// Pick decides by its path how a call is held. It must not block.
type Pick func(path string) Held

// Status ends a call in place of the backend's answer.
type Status struct {
	Code codes.Code
	Text string
}

// Verdict is what a hook decides for a held call.
type Verdict struct {
	// Message replaces the original; nil forwards the original byte for byte.
	Message []byte
	// More is appended to the original message, if Message is nil. In encodings such as
	// protobuf, where a later occurrence counts, that changes a message without encoding it
	// again.
	More []byte
	// Refuse, if not nil, answers the call; the backend does nothing.
	Refuse *Status
	// Done, if not nil, is called once with the outcome of the call, before the caller gets
	// the answer. It must not block.
	Done func(Outcome)
}

// Outcome is how a call ended.
type Outcome struct {
	// Sent: the backend got the message, at least in part.
	Sent bool
	// Answered: the backend's status was received. Without it, a call that was sent may or
	// may not have had an effect.
	Answered bool
	Code     codes.Code
	// Message is the first message of the answer, without prefix; nil if there was no
	// readable one.
	Message []byte
}

// The stages of a held call's request.
const (
	collecting = iota // the message is incomplete
	deciding          // the hook runs
	sending           // the verdict is sent to the backend
	forwarding        // frames are forwarded
	refusing          // the relay has reset the call at the backend
	over              // answered or cancelled; further frames are dropped
)

// call is one held call. The connection's mutex guards it.
type call struct {
	id       uint32
	hook     Hook
	quick    bool
	encoding string
	cancel   context.CancelFunc
	flow     flow

	stage int
	// held are bytes of DATA frames that the backend has not got; buf is where they were
	// stored first.
	held, buf []byte
	kept      int  // bytes of this call that count towards the connection's maxKept
	asked     bool // its hook, which reads held, has not returned
	// callerDone: the caller has ended its side of the stream.
	callerDone bool

	// What the backend has sent so far.
	begun         bool
	replyEncoding string
	reply         []byte
	replyLost     bool
	sent          bool
	done          func(Outcome)
	refusal       *Status
}

// tooManyCalls marks a call beyond maxStreams: its stream is refused, without a gRPC
// status. It is compared by address.
var tooManyCalls = &Status{Code: codes.Unavailable}

// tooManyBytes answers a call whose message does not fit into maxKept.
var tooManyBytes = &Status{Code: codes.ResourceExhausted, Text: "trimtab holds too many bytes of this connection's messages"}

// outcome returns what is known of the call now.
func (c *call) outcome(limit int) Outcome {
	o := Outcome{Sent: c.sent}
	if n, whole := messageSize(c.reply); whole && !c.replyLost {
		if msg, err := open(c.reply[:n], c.replyEncoding, limit); err == nil {
			o.Message = msg
		}
	}
	return o
}
