package relay

import (
	"context"

	"google.golang.org/grpc/codes"
)

// Hook decides one held call before the backend gets the message of the call. msg is this message, uncompressed and
// without its gRPC prefix. The hook must not use msg after the hook has returned, and must not panic. ctx ends when the
// caller cancels the call, when the call is answered, or when the connection ends.
type Hook func(ctx context.Context, msg []byte) Verdict

// Handling says how the relay holds a call. With the zero value, the relay does not hold the call, but forwards it
// unchanged.
type Handling struct {
	// Hook decides the call. If it is nil, the relay does not hold the call. If RunsInline is false, the hook runs on
	// another goroutine than the relay, and may block.
	Hook Hook
	// RunsInline means that the hook does not block. The goroutine that reads from the caller may then run the hook. So
	// the relay can write the message to the backend together with the frames before and after the message.
	RunsInline bool
}

// HandlingFunc returns how the relay holds a call. path is the path of the call's gRPC method. The function must not
// block.
type HandlingFunc func(path string) Handling

// Status is a gRPC status with which the relay itself answers a call.
type Status struct {
	Code codes.Code
	Text string
}

// Verdict is what a hook decides for a held call.
type Verdict struct {
	// Message replaces the original message; nil forwards the original message byte for byte.
	Message []byte
	// Appended is appended to the original message, if Message is nil. In protobuf, the last value of a field counts. So
	// appended bytes can change a field, and the message need not be encoded again.
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
	// Message is the first message of the backend's answer, without its gRPC prefix; nil if the relay could not read it.
	Message []byte
}

// The stages of a held call's request.
const (
	stageCollecting = iota // the relay waits for the rest of the message
	stageDeciding          // the hook runs
	stageSending           // the relay sends the message to the backend, as the verdict says
	stageForwarding        // the relay forwards all further frames of the caller
	stageRefusing          // the relay has reset the call at the backend, and will answer the call itself
	stageFinished          // the call is answered or cancelled; the relay drops further frames of the caller
)

// call is one held call. The connection's mutex guards it.
type call struct {
	id           uint32
	hook         Hook
	mayRunInline bool               // the relay can still run the hook on the goroutine that reads from the caller
	encoding     string             // the grpc-encoding of the message
	cancel       context.CancelFunc // ends the hook's context
	flow         flow               // the flow-control window of the call's stream, towards the backend

	stage int // stageCollecting to stageFinished
	// held are the bytes of DATA frames that the relay has not sent to the backend. buf is the buffer in which held
	// begins. When the relay has sent all of held, it can reuse buf for another call.
	held, buf    []byte
	countedBytes int  // how many bytes of held, and of the decompressed message, are in usage.heldBytes
	hookRuns     bool // the call's hook, which reads held, has not returned
	// callerDone means that the caller has ended its side of the stream.
	callerDone bool

	responseStarted bool          // the backend has sent the first headers of the answer
	replyEncoding   string        // the grpc-encoding of the answer
	reply           []byte        // the first message of the answer, as far as it has arrived
	replyLost       bool          // the answer exceeded a limit and was not stored
	sent            bool          // the backend got the message, or a part of it
	onOutcome       func(Outcome) // the verdict's OnOutcome; nil after the relay has called it
	refusal         *Status       // the relay's own answer; nil if the relay does not refuse the call
}

// tooManyCalls is the refusal of a call above the limit of maxStreams. The caller gets no gRPC status for this refusal,
// but RST_STREAM with the code REFUSED_STREAM. The relay recognises the refusal by this pointer.
var tooManyCalls = &Status{Code: codes.Unavailable}

// tooManyBytes answers a call whose message does not fit into maxHeldBytes.
var tooManyBytes = &Status{Code: codes.ResourceExhausted, Text: "trimtab holds too many bytes of this connection's messages; try again when other calls have ended"}

// outcome returns the outcome of a call, without the backend's status. limit is the largest size in bytes of a
// decompressed message.
func (c *call) outcome(limit int) Outcome {
	o := Outcome{Sent: c.sent}
	if n, whole := messageSize(c.reply); whole && !c.replyLost {
		if msg, err := decompress(c.reply[:n], c.replyEncoding, limit); err == nil {
			o.Message = msg
		}
	}
	return o
}
