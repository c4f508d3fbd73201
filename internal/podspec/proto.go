package podspec

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// message reads fields of a protobuf message by their numbers, which never change. It
// skips all others, and those that are not length-delimited.
type message map[protowire.Number]func([]byte) error

func (m message) read(b []byte) error {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		if size = protowire.ConsumeFieldValue(n, kind, b); size < 0 {
			return protowire.ParseError(size)
		}
		if read := m[n]; read != nil && kind == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b)
			if err := read(v); err != nil {
				return err
			}
		}
		b = b[size:]
	}
	return nil
}

// decodePod reads the protobuf form of a v1.Pod (k8s.io/api/core/v1 generated.proto,
// v0.36), in which the Pods API sends pods. It returns the UID also for a pod that
// cannot be read, unless the UID itself cannot be.
func decodePod(data []byte) (s *lifecycle.PodSpec, of *Pending, uid string, err error) {
	var p v1Pod
	if err := p.message().read(data); err != nil {
		return nil, nil, p.Metadata.UID, fmt.Errorf("malformed pod: %w", err)
	}
	s, err = p.spec(lifecycle.FromPodsAPI)
	return s, p.pending(), p.Metadata.UID, err
}

func (p *v1Pod) message() message {
	meta, spec := &p.Metadata, &p.Spec
	return message{
		1: message{
			1: text(&meta.Name), 3: text(&meta.Namespace), 5: text(&meta.UID),
			9:  func([]byte) error { meta.Deletion = "set"; return nil }, // a message, whose time does not matter
			11: entry(&meta.Labels, text), 12: entry(&meta.Annotations, text),
		}.read,
		2: message{
			2:  container(&spec.Containers, (*v1Container).message),
			10: text(&spec.NodeName),
			20: container(&spec.InitContainers, (*v1Container).message),
			32: entry(&spec.Overhead, quantity),
			34: container(&spec.EphemeralContainers, func(c *v1Container) message { return message{1: c.message().read} }),
			40: spec.Resources.message().read,
		}.read,
		3: message{1: text(&p.Status.Phase), 9: text(&p.Status.QoS)}.read,
	}
}

func (c *v1Container) message() message {
	return message{1: text(&c.Name), 8: c.Resources.message().read, 24: text(&c.RestartPolicy)}
}

func (r *v1Resources) message() message {
	return message{1: entry(&r.Limits, quantity), 2: entry(&r.Requests, quantity)}
}

// container adds a container to a list.
func container(to *[]v1Container, of func(*v1Container) message) func([]byte) error {
	return func(v []byte) error {
		var c v1Container
		err := of(&c).read(v)
		*to = append(*to, c)
		return err
	}
}

// entry reads one entry of a map.
func entry[T ~string](into *map[string]T, value func(*T) func([]byte) error) func([]byte) error {
	return func(v []byte) error {
		var key string
		var t T
		if err := (message{1: text(&key), 2: value(&t)}).read(v); err != nil {
			return err
		}
		if *into == nil {
			*into = map[string]T{}
		}
		(*into)[key] = t
		return nil
	}
}

func text[T ~string](into *T) func([]byte) error {
	return func(v []byte) error {
		*into = T(v)
		return nil
	}
}

func quantity(into *v1Quantity) func([]byte) error { return message{1: text(into)}.read }
