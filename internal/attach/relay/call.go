package relay

import (
	"context"

	"google.golang.org/grpc/codes"
)

// Hook is asked about one held call before the backend has its message. It is
// given the message without prefix and uncompressed, which is its own until it
// returns, and must not panic. Its context ends when the caller gives the call
// up, when the call has been answered, or with the connection.
type Hook func(ctx context.Context, msg []byte) Verdict

// Held says how a call is held. The zero Held lets it pass.
type Held struct {
	// Hook runs on a goroutine of its own and may block, unless the call is Quick.
	Hook Hook
	// Quick: the hook returns at once. The goroutine that reads the connection may
	// call it: the message then goes on with the frames around it.
	Quick bool
}

// Pick says how calls are held, by their path. It must not block.
type Pick func(path string) Held

// Status ends a call instead of the backend.
type Status struct {
	Code codes.Code
	Text string
}

// Verdict is what becomes of a held call.
type Verdict struct {
	// Message goes to the backend in place of the original; nil has the original
	// go on as it came, byte for byte.
	Message []byte
	// More follows the original message, where Message is nil. Encodings in which
	// what comes later counts, as protobuf's, are changed so without being made
	// again.
	More []byte
	// Refuse, where not nil, answers the call; the backend does nothing.
	Refuse *Status
	// Done, where not nil, is called once with the outcome of the call, before the
	// caller gets it. It must not block.
	Done func(Outcome)
}

// Outcome is what became of a call.
type Outcome struct {
	// Sent: the backend was given the message, at least in part.
	Sent bool
	// Answered: the backend's status was seen. Without it a call that was sent
	// may or may not have been done.
	Answered bool
	Code     codes.Code
	// Message is the first message of the answer, without prefix; nil where
	// there was none that could be read.
	Message []byte
}

// The stages of a held call's request.
const (
	collecting = iota // its message is not whole
	deciding          // the hook is asked
	sending           // the verdict goes to the backend
	flowing           // what comes, goes on
	refusing          // the relay has reset the call at the backend
	over              // answered or given up; what still comes is dropped
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
	// held are bytes of DATA frames the backend has not got; room is where they
	// lay at first.
	held, room []byte
	kept       int  // bytes of the connection's that are this call's request
	asked      bool // its hook has not returned, which reads held
	// callerDone: the caller has ended its side.
	callerDone bool

	// What the backend said so far.
	begun         bool
	replyEncoding string
	reply         []byte
	replyLost     bool
	sent          bool
	done          func(Outcome)
	refusal       *Status
}

// busy answers a call beyond maxStreams, by its address: a stream that is refused, and no
// status of gRPC's.
var busy = &Status{Code: codes.Unavailable}

// full answers a call whose message does not fit into maxKept.
var full = &Status{Code: codes.ResourceExhausted, Text: "trimtab holds too many bytes of this connection's messages"}

// outcome says what is known now.
func (c *call) outcome(limit int) Outcome {
	o := Outcome{Sent: c.sent}
	if n, whole := messageSize(c.reply); whole && !c.replyLost {
		if msg, err := open(c.reply[:n], c.replyEncoding, limit); err == nil {
			o.Message = msg
		}
	}
	return o
}
