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

	"github.com/trimtab/trimtab/internal/protofields"
)

// Listed has the parts of a list entry that a comparison needs. The agent requests lists often. They consist mostly
// of labels and annotations, which the decoder skips.
type Listed struct {
	ID    string
	Pod   string // the id of a container's pod; "" for a pod
	State int32  // cri.ContainerState or cri.PodSandboxState
}

// The states that a comparison of lists distinguishes.
const (
	Ready   = int32(cri.PodSandboxState_SANDBOX_READY)
	Running = int32(cri.ContainerState_CONTAINER_RUNNING)
	Exited  = int32(cri.ContainerState_CONTAINER_EXITED)
)

// fieldNumbers has the field numbers of a list's items (api.proto of the CRI, v1). In both answers the list itself is
// field 1.
type fieldNumbers struct{ id, pod, state protowire.Number }

var (
	podFields       = fieldNumbers{id: 1, state: 3}         // PodSandbox
	containerFields = fieldNumbers{id: 1, pod: 2, state: 6} // Container
)

// List lists all pods and containers.
func (c *Client) List(ctx context.Context) (pods, ctrs []Listed, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	// Containers first: the later list of pods then has the pod of every listed container.
	if ctrs, err = c.readList(ctx, cri.RuntimeService_ListContainers_FullMethodName, containerFields); err != nil {
		return nil, nil, fmt.Errorf("list containers: %w", err)
	}
	if pods, err = c.readList(ctx, cri.RuntimeService_ListPodSandbox_FullMethodName, podFields); err != nil {
		return nil, nil, fmt.Errorf("list pods: %w", err)
	}
	return pods, ctrs, nil
}

func (c *Client) readList(ctx context.Context, method string, s fieldNumbers) ([]Listed, error) {
	c.readLock.Lock()
	defer c.readLock.Unlock()
	l := &listing{numbers: s, buf: &c.listBuffer}
	// An empty request lists all objects. Its encoding is the same for pods and containers.
	err := c.conn.Invoke(ctx, method, &cri.ListContainersRequest{}, l, grpc.ForceCodecV2(listingCodec{encoding.GetCodecV2(proto.Name)}))
	return l.items, err
}

// listing is a list while it is decoded. The next list reuses its buffer.
type listing struct {
	numbers fieldNumbers
	items   []Listed
	buf     *[]byte
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
	items, err := decodeItems((*l.buf)[:data.CopyTo(*l.buf)], l.numbers)
	l.items = items
	return err
}

// decodeItems decodes the items of a list. As everywhere in protobuf, the last occurrence of a field counts, and
// unknown fields are skipped.
func decodeItems(b []byte, s fieldNumbers) ([]Listed, error) {
	var items []Listed
	err := protofields.Each(b, func(n protowire.Number, _ uint64, item []byte) error {
		if n != 1 || item == nil {
			return nil
		}
		var l Listed
		err := protofields.Each(item, func(n protowire.Number, v uint64, text []byte) error {
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
