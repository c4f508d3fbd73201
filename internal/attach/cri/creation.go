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

// creation is a CreateContainerRequest. The kubelet waits while we read it, so we skip the part about the pod,
// which the agent knows already.
type creation struct {
	msg       []byte
	pod       string
	requested *lifecycle.Container // without its id
}

// parseCreation reads a CreateContainerRequest. ok is false for a malformed request.
func parseCreation(msg []byte) (c creation, ok bool) {
	c.msg = msg
	var config []byte
	err := protofields.Each(msg, func(n protowire.Number, _ uint64, b []byte) error {
		switch {
		case b == nil:
		case n == podSandboxIDField:
			c.pod = string(b)
		case n == configField && config == nil:
			config = b
		case n == configField: // protobuf merges a message that occurs twice
			config = append(config[:len(config):len(config)], b...)
		}
		return nil
	})
	if err != nil || config == nil || c.pod == "" || !utf8.ValidString(c.pod) {
		return c, false
	}
	c.requested, ok = criclient.ContainerOfConfig(config, c.pod)
	return c, ok
}

// describedPod returns the pod as the request describes it.
func (c creation) describedPod() *lifecycle.Pod {
	p := &cri.PodSandboxConfig{}
	_ = protofields.Each(c.msg, func(n protowire.Number, _ uint64, b []byte) error {
		if n == sandboxConfigField && b != nil {
			return proto.UnmarshalOptions{Merge: true}.Unmarshal(b, p)
		}
		return nil
	})
	return criclient.PodOfConfig(p, c.pod, "")
}

// withValues puts values into a request. Most values only add to the request. withValues then appends them to the
// original message, because protobuf merges a later occurrence into an earlier one. Otherwise it encodes the whole
// message again. unsupported are the values that the CRI cannot carry.
func (c *calls) withValues(req creation, values []lifecycle.Value) (message, more []byte, unsupported []lifecycle.Value) {
	values, refused := c.link.splitSupported(runtimes.Create, values)
	if !slices.ContainsFunc(values, func(v lifecycle.Value) bool { return replaces(req.requested, v) }) {
		added := &criContainer{}
		unsupported = adjust(added, values)
		if b := c.events.encode(added); len(b) > 0 {
			more = protowire.AppendBytes(protowire.AppendTag(nil, configField, protowire.BytesType), b)
		}
		return nil, more, append(unsupported, refused...)
	}
	whole := &cri.CreateContainerRequest{}
	if proto.Unmarshal(req.msg, whole) != nil {
		return nil, nil, nil // the runtime refuses the malformed request
	}
	unsupported = adjust(whole.Config, values)
	return c.events.encode(whole), nil, append(unsupported, refused...)
}

// replaces reports whether a value changes an entry of a list, or sets a number to its zero value. Bytes that are
// appended to a message can do neither.
func replaces(c *lifecycle.Container, v lifecycle.Value) bool {
	s := settingOf(v.Field)
	return s != nil && s.replaces != nil && s.replaces(c, v)
}
