package nrihost

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"reflect"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/trimtab/trimtab/internal/report/logkey"
)

// specStore changes the OCI specs that containerd stores for containers. When a container starts, containerd makes the
// container's process from the stored spec (internal/cri/server/container_start.go of 1.6 to 2.x: container.NewTask).
// When a CRI call updates the resources of a container, containerd also changes the stored spec.
//
// The API is api/services/containers/v1/containers.proto of containerd. The two methods and six fields that specStore
// uses have not changed since 1.0.
type specStore struct{ conn *grpc.ClientConn }

// The two methods of containerd's API that specStore calls, and what each call has.
const (
	containersGet    = "/containerd.services.containers.v1.Containers/Get"
	containersUpdate = "/containerd.services.containers.v1.Containers/Update"
	namespaceKey     = "containerd-namespace" // the key of the gRPC metadata that names the namespace
	criNamespace     = "k8s.io"               // the namespace of all containers of containerd's CRI
	specTimeout      = 5 * time.Second        // limits the time for one call of a method
)

// The numbers of fields in the messages of containers.proto, and in google.protobuf.Any and FieldMask.
const (
	firstField        protowire.Number = 1 // GetContainerRequest.id, Container.id, Any.type_url, FieldMask.paths
	responseContainer protowire.Number = 1 // GetContainerResponse.container
	requestContainer  protowire.Number = 1 // UpdateContainerRequest.container
	requestMask       protowire.Number = 2 // UpdateContainerRequest.update_mask
	containerSpec     protowire.Number = 5 // Container.spec
	anyValueField     protowire.Number = 2 // Any.value
)

// errMalformedSpec is the error for an answer of containerd that lacks the field Container.spec.
var errMalformedSpec = errors.New("the runtime's answer about a stored OCI spec does not have the form of containerd's API")

// openSpecStore connects to the API with which the agent changes the OCI specs that the runtime stores. It returns nil
// if the runtime does not have this API.
func (h *Host) openSpecStore(ctx context.Context) *specStore {
	conn, err := grpc.NewClient("passthrough:///containerd", clientOptions(func(ctx context.Context) (net.Conn, error) { return h.opts.Dial.Dial(ctx, h.opts.RuntimeSocket) })...)
	if err != nil {
		return nil
	}
	s := &specStore{conn: conn}
	// No container has this id. So a runtime that has the API returns the error NotFound, and not Unimplemented.
	if _, err := s.getSpec(ctx, "trimtab-asks-whether-it-may"); status.Code(err) != codes.NotFound {
		h.log.Info("the agent cannot change the OCI specs that the runtime stores, so it asks NRI plugins before the creation of a container, with a provisional id", logkey.Err, err)
		s.close()
		return nil
	}
	return s
}

func (s *specStore) close() { _ = s.conn.Close() }

// call calls a method of the API with an encoded request, and returns the encoded answer.
func (s *specStore) call(ctx context.Context, method string, req []byte) (resp []byte, err error) {
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, namespaceKey, criNamespace), specTimeout)
	defer cancel()
	err = s.conn.Invoke(ctx, method, &req, &resp, grpc.ForceCodec(bytesCodec{}))
	return resp, err
}

// storedSpec is an OCI spec in the form in which the runtime stores it.
type storedSpec struct {
	typeURL  string // the type URL of the Any message that has the spec
	specJSON []byte
}

// getSpec reads the stored OCI spec of a container.
func (s *specStore) getSpec(ctx context.Context, id string) (storedSpec, error) {
	resp, err := s.call(ctx, containersGet, encodeText(id))
	if err != nil {
		return storedSpec{}, err
	}
	any := lastBytesField(lastBytesField(resp, responseContainer), containerSpec)
	out := storedSpec{typeURL: string(lastBytesField(any, firstField)), specJSON: lastBytesField(any, anyValueField)}
	if len(out.specJSON) == 0 {
		return storedSpec{}, errMalformedSpec
	}
	return out, nil
}

// changeSpec reads a container's stored OCI spec, applies the function change to the spec, and stores the result. It
// returns the changed spec.
func (s *specStore) changeSpec(ctx context.Context, id string, change func(*specs.Spec) error) (*specs.Spec, error) {
	old, err := s.getSpec(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read the stored spec of container %s: %w", id, err)
	}
	spec := &specs.Spec{}
	if err := json.Unmarshal(old.specJSON, spec); err != nil {
		return nil, fmt.Errorf("read the stored spec of container %s: %w", id, err)
	}
	before, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encode the stored spec of container %s: %w", id, err)
	}
	if err := change(spec); err != nil {
		return nil, err
	}
	after, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("encode the changed spec of container %s: %w", id, err)
	}
	if bytes.Equal(before, after) {
		return spec, nil
	}
	document, err := mergeSpec(old.specJSON, before, after)
	if err != nil {
		return nil, fmt.Errorf("encode the changed spec of container %s: %w", id, err)
	}
	value := appendBytes(encodeText(old.typeURL), anyValueField, document)
	c := appendBytes(encodeText(id), containerSpec, value)
	req := appendBytes(appendBytes(nil, requestContainer, c), requestMask, encodeText("spec"))
	if _, err := s.call(ctx, containersUpdate, req); err != nil {
		return nil, fmt.Errorf("write the spec of container %s: %w", id, err)
	}
	return spec, nil
}

// mergeSpec applies the differences between before and after to a JSON document. It keeps the keys of the document that
// neither before nor after has, such as fields of a newer OCI spec.
func mergeSpec(document, before, after []byte) ([]byte, error) {
	var d, b, a any
	for text, into := range map[*[]byte]*any{&document: &d, &before: &b, &after: &a} {
		dec := json.NewDecoder(bytes.NewReader(*text))
		dec.UseNumber()
		if err := dec.Decode(into); err != nil {
			return nil, err
		}
	}
	return json.Marshal(mergeChanges(d, b, a))
}

// mergeChanges applies the differences between b (before) and a (after) to the decoded JSON document d, and returns the
// result. It can modify d.
func mergeChanges(d, b, a any) any {
	if reflect.DeepEqual(b, a) {
		return d
	}
	dm, isD := d.(map[string]any)
	bm, isB := b.(map[string]any)
	am, isA := a.(map[string]any)
	if !isD || !isB || !isA {
		return a
	}
	for k := range bm {
		if _, stays := am[k]; !stays {
			delete(dm, k)
		}
	}
	for k, v := range am {
		dm[k] = mergeChanges(dm[k], bm[k], v)
	}
	return dm
}

// encodeText encodes a message that has only one field: the text v, with the field number 1.
func encodeText(v string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, firstField, protowire.BytesType), v)
}

// appendBytes appends to b the field with the number n and the bytes v.
func appendBytes(b []byte, n protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}

// lastBytesField returns the bytes of the last field with the number want in a message, or nil if there is no such
// field.
func lastBytesField(b []byte, want protowire.Number) (found []byte) {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return nil
		}
		b = b[size:]
		if n == want && kind == protowire.BytesType {
			v, size := protowire.ConsumeBytes(b)
			if size < 0 {
				return nil
			}
			found, b = v, b[size:]
			continue
		}
		if size = protowire.ConsumeFieldValue(n, kind, b); size < 0 {
			return nil
		}
		b = b[size:]
	}
	return found
}
