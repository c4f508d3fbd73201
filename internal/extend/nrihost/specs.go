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

// specStore changes the OCI specs of containers that containerd stores. When a container starts, containerd's CRI makes
// its process from the stored spec (internal/cri/server/container_start.go of 1.6 to 2.x: container.NewTask). When the
// CRI updates the resources of a container, it also changes the stored spec.
//
// The API is api/services/containers/v1/containers.proto of containerd. The two methods and six fields that specStore
// uses have not changed since 1.0.
type specStore struct{ conn *grpc.ClientConn }

const (
	containersGet    = "/containerd.services.containers.v1.Containers/Get"
	containersUpdate = "/containerd.services.containers.v1.Containers/Update"
	namespaceKey     = "containerd-namespace"
	criNamespace     = "k8s.io" // the namespace of all containers of containerd's CRI
	specTimeout      = 5 * time.Second
)

// Fields of the messages of containers.proto, and of google.protobuf.Any and FieldMask.
const (
	firstField        protowire.Number = 1 // GetContainerRequest.id, Container.id, Any.type_url, FieldMask.paths
	responseContainer protowire.Number = 1 // GetContainerResponse.container
	requestContainer  protowire.Number = 1 // UpdateContainerRequest.container
	requestMask       protowire.Number = 2 // UpdateContainerRequest.update_mask
	containerSpec     protowire.Number = 5 // Container.spec
	anyValueField     protowire.Number = 2
)

// errMalformedSpec is the error of an answer without the field Container.spec.
var errMalformedSpec = errors.New("the runtime's answer about a stored OCI spec does not have the form of containerd's API")

// openSpecStore opens the runtime's store of specs. It returns nil if the agent cannot change specs of this runtime.
func (h *Host) openSpecStore(ctx context.Context) *specStore {
	conn, err := grpc.NewClient("passthrough:///containerd", clientOptions(func(ctx context.Context) (net.Conn, error) { return h.opts.Dial.Dial(ctx, h.opts.RuntimeSocket) })...)
	if err != nil {
		return nil
	}
	s := &specStore{conn: conn}
	// No container has this id, so the error NotFound shows that the service exists.
	if _, err := s.getSpec(ctx, "trimtab-asks-whether-it-may"); status.Code(err) != codes.NotFound {
		h.log.Info("the agent cannot change the OCI specs that the runtime stores, so it asks NRI plugins before the creation of a container, with a provisional id", logkey.Err, err)
		s.close()
		return nil
	}
	return s
}

func (s *specStore) close() { _ = s.conn.Close() }

func (s *specStore) call(ctx context.Context, method string, req []byte) (resp []byte, err error) {
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, namespaceKey, criNamespace), specTimeout)
	defer cancel()
	err = s.conn.Invoke(ctx, method, &req, &resp, grpc.ForceCodec(bytesCodec{}))
	return resp, err
}

// storedSpec is an OCI spec in the form in which the runtime stores it.
type storedSpec struct {
	typeURL  string // of the Any message that has the spec
	specJSON []byte
}

// getSpec reads the stored spec of a container.
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

// changeSpec reads a container's spec, applies the function change to it, and writes it. It returns the changed spec.
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

// mergeSpec applies the differences between before and after to a document. It keeps the parts of the document that are
// not in before or after, such as fields of a newer OCI spec.
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

// mergeChanges is mergeSpec for decoded JSON: d is the document, b is before, and a is after.
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

// encodeText encodes a message that has only a text, in field 1.
func encodeText(v string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, firstField, protowire.BytesType), v)
}

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
