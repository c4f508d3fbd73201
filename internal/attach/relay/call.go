package relay

import (
	"context"

	"google.golang.org/grpc/codes"
)

// Hook decides one held call before the backend gets the message of the call. msg is this message, uncompressed and
// without its prefix. The hook must not use msg after it returns, and must not panic. ctx ends when the caller cancels
// the call, when the call is answered, or when the connection ends.
type Hook func(ctx context.Context, msg []byte) Verdict

// Handling says how the relay holds a call. The zero value forwards the call unchanged.
type Handling struct {
	// Hook runs on its own goroutine and may block, unless RunsInline is set.
	Hook Hook
	// RunsInline means that the hook returns at once. The goroutine that reads the connection may then run the hook, so
	// that the relay forwards the message together with the frames around it.
	RunsInline bool
}

// HandlingFunc decides from the path of a call how the relay holds the call. It must not block.
type HandlingFunc func(path string) Handling

// Status ends a call in place of the backend's answer.
type Status struct {
	Code codes.Code
	Text string
}

// Verdict is what a hook decides for a held call.
type Verdict struct {
	// Message replaces the original message; nil forwards the original message byte for byte.
	Message []byte
	// Appended is appended to the original message, if Message is nil. In encodings in which a later occurrence counts,
	// such as protobuf, this changes a message without encoding it again.
	Appended []byte
	// Refuse, if not nil, is the answer to the call. The backend does not get the message.
	Refuse *Status
	// OnOutcome, if not nil, is called once with the outcome of the call, before the caller gets the answer. It must
	// not block.
	OnOutcome func(Outcome)
}

// Outcome is how a call ended.
type Outcome struct {
	// Sent means that the backend got the message, or a part of it.
	Sent bool
	// Answered means that the relay received the backend's status. If Sent is true and Answered is false, the call may or
	// may not have had an effect.
	Answered bool
	Code     codes.Code // the backend's status, if Answered is true
	// Message is the first message of the answer, without prefix; nil if the relay could not read one.
	Message []byte
}

// The stages of a held call's request.
const (
	stageCollecting = iota // the message is incomplete
	stageDeciding          // the hook runs
	stageSending           // the verdict is sent to the backend
	stageForwarding        // frames are forwarded
	stageRefusing          // the relay has refused the call, and has reset it at the backend
	stageFinished          // answered or cancelled; further frames are dropped
)

// call is one held call. The connection's mutex guards it.
type call struct {
	id           uint32
	hook         Hook
	mayRunInline bool   // the hook returns at once, and the goroutine that reads the connection has not run it yet
	encoding     string // the grpc-encoding of the message
	cancel       context.CancelFunc
	flow         flow // of the call's stream, towards the backend

	stage int // stageCollecting to stageFinished
	// held are the bytes of DATA frames that the relay has not sent to the backend. buf is the buffer from spareBuffers
	// in which the first of these bytes were stored.
	held, buf    []byte
	countedBytes int  // bytes of this call that count towards the connection's maxHeldBytes
	hookRuns     bool // the call's hook, which reads held, has not returned
	// callerDone means that the caller has ended its side of the stream.
	callerDone bool

	// What the backend has sent so far.
	responseStarted bool
	replyEncoding   string        // the grpc-encoding of the answer
	reply           []byte        // the first message of the answer, as far as it has arrived
	replyLost       bool          // the answer exceeded a limit and was not stored
	sent            bool          // the backend got the message, or a part of it
	onOutcome       func(Outcome) // see Verdict.OnOutcome
	refusal         *Status       // the relay's own answer; nil if the relay does not refuse the call
}

// tooManyCalls is the refusal of a call beyond maxStreams. The relay refuses the stream of such a call without a gRPC
// status. It recognises the refusal by this pointer.
var tooManyCalls = &Status{Code: codes.Unavailable}

// tooManyBytes answers a call whose message does not fit into maxHeldBytes.
var tooManyBytes = &Status{Code: codes.ResourceExhausted, Text: "trimtab holds too many bytes of this connection's messages; try again when other calls have ended"}

// outcome returns the outcome of a call, as far as the relay knows it. limit is the longest message in bytes.
func (c *call) outcome(limit int) Outcome {
	o := Outcome{Sent: c.sent}
	if n, whole := messageSize(c.reply); whole && !c.replyLost {
		if msg, err := decompress(c.reply[:n], c.replyEncoding, limit); err == nil {
			o.Message = msg
		}
	}
	return o
}
