package nrihost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// maxMessage is the size in bytes of the largest message that kubelets and runtimes accept.
const maxMessage = 16 << 20

// criServices are the gRPC services of the CRI whose calls the host intercepts. The messages of v1alpha2 (Kubernetes
// before 1.26) have the same fields with the same numbers as the messages of v1.
var criServices = []string{"/runtime.v1.RuntimeService/", "/runtime.v1alpha2.RuntimeService/"}

// bytesCodec is a gRPC codec that neither encodes nor decodes messages: each message is a *[]byte. It has the name of
// gRPC's own codec, so that the content type of calls does not change.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(v any) ([]byte, error) {
	if b, ok := v.(*[]byte); ok {
		return *b, nil
	}
	return nil, fmt.Errorf("encode a message of type %T: want *[]byte", v)
}

func (bytesCodec) Unmarshal(b []byte, v any) error {
	if out, ok := v.(*[]byte); ok {
		*out = append([]byte(nil), b...)
		return nil
	}
	return fmt.Errorf("decode a message of type %T: want *[]byte", v)
}

// clientOptions returns the gRPC options of a client that connects with the function dial.
func clientOptions(dial func(context.Context) (net.Conn, error)) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: time.Second}}),
	}
}

// serverOptions returns the gRPC options of the server for CRI clients. The server passes each call to Host.serve.
func (h *Host) serverOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.ForceServerCodec(bytesCodec{}), grpc.UnknownServiceHandler(h.serve),
	}
}

// serve serves one call of any gRPC method.
func (h *Host) serve(_ any, s grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(s)
	c := call{host: h, method: method, stream: s}
	for _, service := range criServices {
		name, ours := strings.CutPrefix(method, service)
		if !ours {
			continue
		}
		if handle := nriCalls[name]; handle != nil {
			return c.serveIntercepted(handle)
		}
		c.filter = answerFilters[name]
		c.objectID = requestObjectIDs[name]
	}
	return c.forward()
}

// call is one gRPC call of a CRI client.
type call struct {
	host     *Host
	method   string // the full gRPC method, such as /runtime.v1.RuntimeService/ListContainers
	stream   grpc.ServerStream
	filter   func(*Host, []byte) []byte // changes answers; nil if the host forwards answers unchanged
	objectID func([]byte) string        // returns the id in a request; nil if the host does not check the ids in requests of this method
}

// withCallerMetadata returns a context for a call to the CRI proxy. It has the gRPC metadata that the CRI client sent.
func withCallerMetadata(ctx context.Context) context.Context {
	md, ok := metadata.FromIncomingContext(ctx)
	if !ok {
		return ctx
	}
	md = md.Copy()
	for k := range md {
		if strings.HasPrefix(k, ":") || strings.HasPrefix(k, "grpc-") || k == "content-type" || k == "user-agent" || k == "te" {
			delete(md, k)
		}
	}
	return metadata.NewOutgoingContext(ctx, md)
}

// forward makes a unary call to the CRI proxy with the encoded request req, and returns the encoded answer.
func (h *Host) forward(ctx context.Context, method string, req []byte) (resp []byte, err error) {
	err = h.runtimeConn.Invoke(withCallerMetadata(ctx), method, &req, &resp, grpc.ForceCodec(bytesCodec{}))
	return resp, err
}

// serveIntercepted serves a call whose method is in nriCalls. If the host serves plugins, or handle.beforeOpen is set,
// it calls the handler. Otherwise it forwards the call to the CRI proxy.
func (c call) serveIntercepted(handle *handler) error {
	c.host.runningNRICalls.Add(1)
	defer c.host.runningNRICalls.Add(-1)
	var req []byte
	if err := c.stream.RecvMsg(&req); err != nil {
		return err
	}
	ctx := c.stream.Context()
	var resp []byte
	var err error
	if c.host.serving.Load() || handle.beforeOpen {
		resp, err = handle.serve(c.host, ctx, c.method, req)
	} else {
		resp, err = c.host.forward(ctx, c.method, req)
	}
	if err != nil {
		return err
	}
	return c.stream.SendMsg(&resp)
}

// forward forwards messages between the CRI client and the CRI proxy until one of them closes the stream.
func (c call) forward() error {
	ctx, cancel := context.WithCancel(withCallerMetadata(c.stream.Context()))
	defer cancel()
	upstream, err := c.host.runtimeConn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, c.method, grpc.ForceCodec(bytesCodec{}))
	if err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() { sent <- c.forwardToRuntime(upstream) }() // ends with the CRI client's stream, at the latest after this method returns
	err = c.forwardToCaller(upstream)
	select {
	case up := <-sent:
		if s, ok := status.FromError(up); ok && s.Code() == codes.NotFound {
			return up
		}
	default:
	}
	return err
}

// forwardToRuntime forwards the CRI client's messages to the runtime.
func (c call) forwardToRuntime(upstream grpc.ClientStream) error {
	for {
		var b []byte
		if err := c.stream.RecvMsg(&b); err != nil {
			if errors.Is(err, io.EOF) {
				return upstream.CloseSend()
			}
			return err
		}
		if c.objectID != nil && c.host.serving.Load() && c.host.hidden.hides(c.objectID(b)) {
			// The runtime must answer as if the hidden object did not exist, so the request gets an id that no runtime
			// assigns.
			b = unknownIDRequest
		}
		if err := upstream.SendMsg(&b); err != nil {
			return err
		}
	}
}

// forwardToCaller forwards the runtime's messages to the CRI client. It filters answers about hidden objects.
func (c call) forwardToCaller(upstream grpc.ClientStream) error {
	header, err := upstream.Header()
	if err == nil && len(header) > 0 {
		_ = c.stream.SetHeader(header)
	}
	for {
		var b []byte
		if err := upstream.RecvMsg(&b); err != nil {
			c.stream.SetTrailer(upstream.Trailer())
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if c.filter != nil && c.host.serving.Load() && c.host.hidden.hasHidden() {
			if b = c.filter(c.host, b); b == nil {
				continue
			}
		}
		if err := c.stream.SendMsg(&b); err != nil {
			return err
		}
	}
}

// handler serves a CRI call that corresponds to an NRI event. Usually the handler is called only while the host serves
// plugins. If beforeOpen is set, it is also called at other times.
type handler struct {
	// serve gets the encoded request of a call, and returns the encoded answer.
	serve      func(h *Host, ctx context.Context, method string, req []byte) ([]byte, error)
	beforeOpen bool
}

// typedHandler makes a handler from f. The handler decodes the request for f and encodes the answer of f. It forwards a
// malformed request unchanged, because the runtime refuses it with an error.
func typedHandler[Q, A any, PQ interface {
	*Q
	proto.Message
}, PA interface {
	*A
	proto.Message
}](f func(h *Host, ctx context.Context, method string, req PQ) (PA, error)) *handler {
	return &handler{serve: func(h *Host, ctx context.Context, method string, b []byte) ([]byte, error) {
		req := PQ(new(Q))
		if proto.Unmarshal(b, req) != nil {
			return h.forward(ctx, method, b)
		}
		resp, err := f(h, ctx, method, req)
		if err != nil {
			return nil, err
		}
		return proto.Marshal(resp)
	}}
}

// invoke forwards a decoded request, and decodes the answer.
func invoke[A any, PA interface {
	*A
	proto.Message
}](ctx context.Context, h *Host, method string, req proto.Message) (PA, error) {
	b, err := proto.Marshal(req)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "encode a CRI request: %v", err)
	}
	b, err = h.forward(ctx, method, b)
	if err != nil {
		return nil, err
	}
	resp := PA(new(A))
	if err := proto.Unmarshal(b, resp); err != nil {
		return nil, status.Errorf(codes.Internal, "decode the runtime's answer: %v", err)
	}
	return resp, nil
}
