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

func (c *requestComparer) send(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if c != nil {
		c.mu.Lock()
		c.sent = append(c.sent, messageOf(method, req))
		c.mu.Unlock()
	}
	return next(ctx, method, req, reply, cc, opts...)
}

// received removes a request that the runtime received from the requests that the kubelet sent. It ignores requests of
// the agent itself, which the kubelet did not send.
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

// changed names the requests that the runtime has not received as they were sent.
func (c *requestComparer) changed() (out []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.sent {
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
