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

// ListItem has the fields of a list entry that a comparison of two lists needs. The agent requests lists often. Lists
// consist mostly of labels and annotations, which the decoder skips.
type ListItem struct {
	ID    string
	Pod   string // the id of a container's pod; "" for a pod
	State int32  // cri.ContainerState or cri.PodSandboxState
}

// The states that a comparison of lists distinguishes.
const (
	StateReady   = int32(cri.PodSandboxState_SANDBOX_READY)
	StateRunning = int32(cri.ContainerState_CONTAINER_RUNNING)
	StateExited  = int32(cri.ContainerState_CONTAINER_EXITED)
)

// fieldNumbers has the numbers of fields in an item of a list (api.proto of the CRI, v1). The items themselves are
// field 1 of the answer to each list call.
type fieldNumbers struct{ id, pod, state protowire.Number }

var (
	podFields       = fieldNumbers{id: 1, state: 3}         // PodSandbox
	containerFields = fieldNumbers{id: 1, pod: 2, state: 6} // Container
)

// List lists all pods and containers.
func (c *Client) List(ctx context.Context) (pods, ctrs []ListItem, err error) {
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

// readList calls a method that returns a list, and decodes the answer.
func (c *Client) readList(ctx context.Context, method string, s fieldNumbers) ([]ListItem, error) {
	c.listMu.Lock()
	defer c.listMu.Unlock()
	l := &decodedList{numbers: s, buf: &c.listBuffer}
	// An empty request lists all objects. Its encoding is the same for pods and containers.
	err := c.conn.Invoke(ctx, method, &cri.ListContainersRequest{}, l, grpc.ForceCodecV2(listingCodec{encoding.GetCodecV2(proto.Name)}))
	return l.items, err
}

// decodedList is a list that listingCodec decodes. buf is the client's buffer, which the next list reuses.
type decodedList struct {
	numbers fieldNumbers
	items   []ListItem
	buf     *[]byte
}

// listingCodec decodes an answer into a decodedList, and uses gRPC's own codec for all other messages.
type listingCodec struct{ encoding.CodecV2 }

// Unmarshal decodes an answer.
func (c listingCodec) Unmarshal(data mem.BufferSlice, v any) error {
	l, ok := v.(*decodedList)
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
func decodeItems(b []byte, s fieldNumbers) ([]ListItem, error) {
	var items []ListItem
	err := protofields.Each(b, func(n protowire.Number, _ uint64, item []byte) error {
		if n != 1 || item == nil {
			return nil
		}
		var l ListItem
		err := protofields.Each(item, func(n protowire.Number, v uint64, text []byte) error {
			switch {
			case n == s.id && text != nil:
				l.ID = string(text)
			case n == s.pod && text != nil:
				l.Pod = string(text)
			case n == s.state && text == nil:
				l.State = int32(v) //nolint:gosec // protobuf also truncates an enum to 32 bits
			}
			return nil
		})
		items = append(items, l)
		return err
	})
	return items, err
}
