package criclient

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Listed has the parts of one list entry that a comparison needs. The agent requests lists all the time. They
// consist mostly of labels and annotations, which we skip and do not decode.
type Listed struct {
	ID    string
	Pod   string // of a container
	State int32  // cri.ContainerState or cri.PodSandboxState
}

// The states that lists are compared by.
const (
	Ready   = int32(cri.PodSandboxState_SANDBOX_READY)
	Running = int32(cri.ContainerState_CONTAINER_RUNNING)
	Exited  = int32(cri.ContainerState_CONTAINER_EXITED)
)

// shape has the field numbers of a list's items (api.proto of the CRI, v1). In both answers the list itself is
// field 1.
type shape struct{ id, pod, state protowire.Number }

var (
	podShape = shape{id: 1, state: 3}         // PodSandbox
	ctrShape = shape{id: 1, pod: 2, state: 6} // Container
)

// List lists all pods and containers.
func (c *Client) List(ctx context.Context) (pods, ctrs []Listed, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	// Containers first: the later list of pods then has the pod of every listed container.
	if ctrs, err = c.readList(ctx, cri.RuntimeService_ListContainers_FullMethodName, ctrShape); err != nil {
		return nil, nil, fmt.Errorf("list containers: %w", err)
	}
	if pods, err = c.readList(ctx, cri.RuntimeService_ListPodSandbox_FullMethodName, podShape); err != nil {
		return nil, nil, fmt.Errorf("list pods: %w", err)
	}
	return pods, ctrs, nil
}

func (c *Client) readList(ctx context.Context, method string, s shape) ([]Listed, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	l := &listing{shape: s, buf: &c.buf}
	// An empty request asks for all; it is the same for both.
	err := c.conn.Invoke(ctx, method, &cri.ListContainersRequest{}, l, grpc.ForceCodecV2(listingCodec{encoding.GetCodecV2(proto.Name)}))
	return l.items, err
}

// listing is a list while it is read. Its buffer is reused for the next list.
type listing struct {
	shape shape
	items []Listed
	buf   *[]byte
}

// listingCodec decodes listings, and passes everything else to gRPC's own codec.
type listingCodec struct{ encoding.CodecV2 }

// Unmarshal decodes an answer.
func (c listingCodec) Unmarshal(data mem.BufferSlice, v any) error {
	l, ok := v.(*listing)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	*l.buf = slices.Grow((*l.buf)[:0], data.Len())[:data.Len()]
	items, err := itemsOf((*l.buf)[:data.CopyTo(*l.buf)], l.shape)
	l.items = items
	return err
}

// itemsOf reads the items of a list. As everywhere in protobuf the last occurrence of a
// field counts, and unknown fields are skipped.
func itemsOf(b []byte, s shape) ([]Listed, error) {
	var items []Listed
	err := EachField(b, func(n protowire.Number, _ uint64, item []byte) error {
		if n != 1 || item == nil {
			return nil
		}
		var l Listed
		err := EachField(item, func(n protowire.Number, v uint64, text []byte) error {
			switch {
			case n == s.id && text != nil:
				l.ID = string(text)
			case n == s.pod && text != nil:
				l.Pod = string(text)
			case n == s.state && text == nil:
				l.State = int32(v) //nolint:gosec // as protobuf reads an enum
			}
			return nil
		})
		items = append(items, l)
		return err
	})
	return items, err
}

// EachField visits fields of the types varint and bytes. bytes is nil only for a varint.
func EachField(b []byte, visit func(n protowire.Number, v uint64, bytes []byte) error) error {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return fmt.Errorf("tag of a field: %w", protowire.ParseError(size))
		}
		b = b[size:]
		var err error
		switch kind {
		case protowire.VarintType:
			var v uint64
			if v, size = protowire.ConsumeVarint(b); size >= 0 {
				err = visit(n, v, nil)
			}
		case protowire.BytesType:
			var v []byte
			if v, size = protowire.ConsumeBytes(b); size >= 0 {
				err = visit(n, 0, v[:len(v):len(v)])
			}
		default:
			size = protowire.ConsumeFieldValue(n, kind, b)
		}
		if size < 0 {
			return fmt.Errorf("field %d: %w", n, protowire.ParseError(size))
		}
		if err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}
