package podspec

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/protofields"
)

// fieldReaders has functions that read the fields of a protobuf message, by the number of the field. The number of a
// field never changes. Fields without a function, and fields that are not length-delimited, are skipped.
type fieldReaders map[protowire.Number]func([]byte) error

// read calls the functions for the fields of a message.
func (m fieldReaders) read(b []byte) error {
	return protofields.Each(b, func(n protowire.Number, _ uint64, v []byte) error {
		if read := m[n]; read != nil && v != nil {
			return read(v)
		}
		return nil
	})
}

// decodePod reads the protobuf form of a v1.Pod (k8s.io/api/core/v1 generated.proto, v0.36), in which the Pods API
// sends pods. pending is nil if the pod has started or is being deleted. uid is set even if the rest of the pod cannot
// be read.
func decodePod(data []byte) (s *lifecycle.PodSpec, pending *PendingPod, uid string, err error) {
	var p v1Pod
	if err := p.readers().read(data); err != nil {
		return nil, nil, p.Metadata.UID, fmt.Errorf("the kubelet sent a malformed pod: %w", err)
	}
	s, err = p.spec(lifecycle.FromPodsAPI)
	return s, p.pending(), p.Metadata.UID, err
}

// readers returns the functions that read a v1.Pod into p.
func (p *v1Pod) readers() fieldReaders {
	meta, spec := &p.Metadata, &p.Spec
	return fieldReaders{
		1: fieldReaders{
			1: stringField(&meta.Name), 3: stringField(&meta.Namespace), 5: stringField(&meta.UID),
			9:  func([]byte) error { meta.Deletion = "set"; return nil }, // a message; only its presence matters
			11: mapField(&meta.Labels, stringField), 12: mapField(&meta.Annotations, stringField),
		}.read,
		2: fieldReaders{
			2:  containerField(&spec.Containers, (*v1Container).readers),
			10: stringField(&spec.NodeName),
			20: containerField(&spec.InitContainers, (*v1Container).readers),
			32: mapField(&spec.Overhead, quantityField),
			34: containerField(&spec.EphemeralContainers, func(c *v1Container) fieldReaders { return fieldReaders{1: c.readers().read} }),
			40: spec.Resources.readers().read,
		}.read,
		3: fieldReaders{1: stringField(&p.Status.Phase), 9: stringField(&p.Status.QoS)}.read,
	}
}

// readers returns the functions that read a v1.Container into c.
func (c *v1Container) readers() fieldReaders {
	return fieldReaders{1: stringField(&c.Name), 8: c.Resources.readers().read, 24: stringField(&c.RestartPolicy)}
}

// readers returns the functions that read a v1.ResourceRequirements into r.
func (r *v1Resources) readers() fieldReaders {
	return fieldReaders{1: mapField(&r.Limits, quantityField), 2: mapField(&r.Requests, quantityField)}
}

// containerField returns a function that reads a container and adds the container to list. The function message returns
// the functions that read the fields of the container.
func containerField(list *[]v1Container, message func(*v1Container) fieldReaders) func([]byte) error {
	return func(v []byte) error {
		var c v1Container
		err := message(&c).read(v)
		*list = append(*list, c)
		return err
	}
}

// mapField returns a function that reads one entry of a map and stores it in the map that into points to. The function
// value returns the function that reads the value of an entry.
func mapField[T ~string](into *map[string]T, value func(*T) func([]byte) error) func([]byte) error {
	return func(v []byte) error {
		var key string
		var t T
		if err := (fieldReaders{1: stringField(&key), 2: value(&t)}).read(v); err != nil {
			return err
		}
		if *into == nil {
			*into = map[string]T{}
		}
		(*into)[key] = t
		return nil
	}
}

// stringField returns a function that reads a string field and stores it in the variable that into points to.
func stringField[T ~string](into *T) func([]byte) error {
	return func(v []byte) error {
		*into = T(v)
		return nil
	}
}

// quantityField returns a function that reads a Quantity message, whose field 1 is the text.
func quantityField(into *v1Quantity) func([]byte) error {
	return fieldReaders{1: stringField(into)}.read
}
