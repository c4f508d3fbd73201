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
	sent           []message // requests that the kubelet sent, and that the runtime did not receive in the same form yet
	unchangedCount int       // the number of requests that the runtime received in the form in which the kubelet sent them
}

// message is a request in encoded form.
type message struct {
	method string
	bytes  []byte
}

// send is a gRPC interceptor of the kubelet. It stores the request and sends it.
func (c *requestComparer) send(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if c != nil {
		c.mu.Lock()
		c.sent = append(c.sent, messageOf(method, req))
		c.mu.Unlock()
	}
	return next(ctx, method, req, reply, cc, opts...)
}

// received handles a request that the runtime received. It removes an equal request from those that the kubelet sent.
// It ignores requests of the agent itself, which the kubelet did not send.
func (c *requestComparer) received(method string, req any) {
	if c == nil {
		return
	}
	got := messageOf(method, req)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, m := range c.sent {
		if m.method == got.method && bytes.Equal(m.bytes, got.bytes) {
			c.sent = append(c.sent[:i], c.sent[i+1:]...)
			c.unchangedCount++
			return
		}
	}
}

// changed describes the requests that the kubelet sent and that the runtime did not receive in the same form.
func (c *requestComparer) changed() (out []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.sent {
		out = append(out, fmt.Sprintf("%s, %d bytes", m.method, len(m.bytes)))
	}
	return out
}

// messageOf returns a request in encoded form.
func messageOf(method string, req any) message {
	m := message{method: method}
	if p, ok := req.(proto.Message); ok {
		m.bytes, _ = proto.MarshalOptions{Deterministic: true}.Marshal(p) // no error: gRPC also encodes this request
	}
	return m
}
