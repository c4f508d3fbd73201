package conformance

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// requestComparer compares the requests that the kubelet sends with those that the runtime receives. A nil
// requestComparer compares nothing.
type requestComparer struct {
	mu             sync.Mutex
	sent           []message // by the kubelet, and not received yet
	unchangedCount int       // number of requests that the runtime received as they were sent
}

// message is a request as bytes.
type message struct {
	method string
	bytes  []byte
}

func (w *requestComparer) send(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if w != nil {
		w.mu.Lock()
		w.sent = append(w.sent, messageOf(method, req))
		w.mu.Unlock()
	}
	return next(ctx, method, req, reply, cc, opts...)
}

// received removes a request that the runtime received from the requests that the kubelet sent. It ignores requests of
// the agent itself, which the kubelet did not send.
func (w *requestComparer) received(method string, req any) {
	if w == nil {
		return
	}
	got := messageOf(method, req)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, m := range w.sent {
		if m.method == got.method && bytes.Equal(m.bytes, got.bytes) {
			w.sent = append(w.sent[:i], w.sent[i+1:]...)
			w.unchangedCount++
			return
		}
	}
}

// changed names the requests that the runtime has not received as they were sent.
func (w *requestComparer) changed() (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.sent {
		out = append(out, fmt.Sprintf("%s, %d bytes", m.method, len(m.bytes)))
	}
	return out
}

func messageOf(method string, req any) message {
	m := message{method: method}
	if p, ok := req.(proto.Message); ok {
		m.bytes, _ = proto.MarshalOptions{Deterministic: true}.Marshal(p) // of a request that was sent
	}
	return m
}
