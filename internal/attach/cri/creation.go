package cri

import (
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/protofields"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// The fields of CreateContainerRequest (api.proto of the CRI, v1).
const (
	podSandboxIDField  protowire.Number = 1 // pod_sandbox_id
	configField        protowire.Number = 2 // config
	sandboxConfigField protowire.Number = 3 // sandbox_config
)

// createRequest is a CreateContainerRequest. The kubelet waits while the agent decodes the request. To save time, the
// agent does not decode the request's description of the pod, because the store usually has the pod.
type createRequest struct {
	msg       []byte // the encoded request
	podID     string
	container *lifecycle.Container // without its id
}

// parseCreateRequest reads a CreateContainerRequest. ok is false for a malformed request.
func parseCreateRequest(msg []byte) (c createRequest, ok bool) {
	c.msg = msg
	var config []byte
	err := protofields.Each(msg, func(n protowire.Number, _ uint64, b []byte) error {
		switch {
		case b == nil:
		case n == podSandboxIDField:
			c.podID = string(b)
		case n == configField && config == nil:
			config = b
		case n == configField: // protobuf merges a message field that occurs twice
			config = append(config[:len(config):len(config)], b...)
		}
		return nil
	})
	if err != nil || config == nil || c.podID == "" || !utf8.ValidString(c.podID) {
		return c, false
	}
	c.container, ok = criclient.ContainerOfConfig(config, c.podID)
	return c, ok
}

// describedPod returns the pod as the request describes it.
func (c createRequest) describedPod() *lifecycle.Pod {
	p := &cri.PodSandboxConfig{}
	_ = protofields.Each(c.msg, func(n protowire.Number, _ uint64, b []byte) error {
		if n == sandboxConfigField && b != nil {
			return proto.UnmarshalOptions{Merge: true}.Unmarshal(b, p)
		}
		return nil
	})
	return criclient.PodOfConfig(p, c.podID, "")
}

// withValues puts values into a request. If all values only add to the request, withValues returns only the bytes to
// append to the request (appended). The relay appends them, because protobuf merges a later occurrence of a field into
// an earlier one. Otherwise withValues returns the whole changed request (message). unsupported are the values that the
// CRI or the runtime does not support.
func (c *callHandler) withValues(req createRequest, values []lifecycle.Value) (message, appended []byte, unsupported []lifecycle.Value) {
	values, refused := c.link.splitSupported(runtimes.CreateCall, values)
	if !slices.ContainsFunc(values, func(v lifecycle.Value) bool { return replaces(req.container, v) }) {
		added := &criContainer{}
		unsupported = putInConfig(added, values)
		if b := c.events.encode(added); len(b) > 0 {
			appended = protowire.AppendBytes(protowire.AppendTag(nil, configField, protowire.BytesType), b)
		}
		return nil, appended, append(unsupported, refused...)
	}
	whole := &cri.CreateContainerRequest{}
	if proto.Unmarshal(req.msg, whole) != nil {
		return nil, nil, nil // the runtime refuses the malformed request
	}
	unsupported = putInConfig(whole.Config, values)
	return c.events.encode(whole), nil, append(unsupported, refused...)
}

// replaces reports whether a value changes an existing entry of a list in the request, or sets a number to zero. Bytes
// that are appended to a message can do neither.
func replaces(c *lifecycle.Container, v lifecycle.Value) bool {
	s := rowOf(v.Field)
	return s != nil && s.replaces != nil && s.replaces(c, v)
}
