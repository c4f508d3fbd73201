package podspec

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Field numbers of k8s.io/api/core/v1 generated.proto (v0.36); numbers never
// change. The Pods API hands pods over in this form.
const (
	podMetadata, podSpec, podStatus = 1, 2, 3

	metaName, metaNamespace, metaUID, metaLabels, metaAnnotations = 1, 3, 5, 11, 12

	specContainers, specNodeName, specInit, specOverhead, specEphemeral, specResources = 2, 10, 20, 32, 34, 40

	statusQoS = 9

	containerName, containerResources, containerRestart = 1, 8, 24

	ephemeralCommon = 1

	resourcesLimits, resourcesRequests = 1, 2

	mapKey, mapValue, quantityString = 1, 2, 1
)

// fields calls do with each length-delimited field of a message and passes over
// all others.
func fields(b []byte, do func(n protowire.Number, v []byte) error) error {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		if kind != protowire.BytesType {
			size := protowire.ConsumeFieldValue(n, kind, b)
			if size < 0 {
				return protowire.ParseError(size)
			}
			b = b[size:]
			continue
		}
		v, size := protowire.ConsumeBytes(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		if err := do(n, v); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}

// decodePod reads the protobuf form of a v1.Pod. Its UID is known also of one that
// cannot be read, unless that is what cannot be.
func decodePod(data []byte) (s *lifecycle.PodSpec, uid string, err error) {
	b := &builder{}
	if err := b.pod(data); err != nil {
		return nil, b.spec.UID, fmt.Errorf("malformed pod: %w", err)
	}
	s, err = b.finish(lifecycle.FromPodsAPI)
	return s, b.spec.UID, err
}

func (b *builder) pod(data []byte) error {
	return fields(data, func(n protowire.Number, v []byte) error {
		switch n {
		case podMetadata:
			return b.metadata(v)
		case podSpec:
			return b.podSpec(v)
		case podStatus:
			return fields(v, func(n protowire.Number, v []byte) error {
				if n == statusQoS {
					b.spec.QoS = string(v)
				}
				return nil
			})
		}
		return nil
	})
}

func (b *builder) metadata(data []byte) error {
	return fields(data, func(n protowire.Number, v []byte) error {
		switch n {
		case metaName:
			b.spec.Name = string(v)
		case metaNamespace:
			b.spec.Namespace = string(v)
		case metaUID:
			b.spec.UID = string(v)
		case metaLabels:
			return textEntry(v, b.label)
		case metaAnnotations:
			return textEntry(v, b.annotation)
		}
		return nil
	})
}

// textEntry reads one entry of a map of texts.
func textEntry(data []byte, add func(key, text string)) error {
	key, text := "", ""
	err := fields(data, func(n protowire.Number, v []byte) error {
		switch n {
		case mapKey:
			key = string(v)
		case mapValue:
			text = string(v)
		}
		return nil
	})
	if err == nil {
		add(key, text)
	}
	return err
}

func (b *builder) podSpec(data []byte) error {
	return fields(data, func(n protowire.Number, v []byte) error {
		switch n {
		case specNodeName:
			b.spec.Node = string(v)
		case specInit:
			c, restart, err := b.container(v)
			b.initContainer(c, restart)
			return err
		case specContainers:
			c, _, err := b.container(v)
			b.apps = append(b.apps, c)
			return err
		case specEphemeral:
			return fields(v, func(n protowire.Number, v []byte) error {
				if n != ephemeralCommon {
					return nil
				}
				c, _, err := b.container(v)
				c.Kind = lifecycle.Ephemeral
				b.ephemeral = append(b.ephemeral, c)
				return err
			})
		case specOverhead:
			return b.entry(&b.spec.Overhead, v)
		case specResources:
			return b.resources(&b.spec.Requests, &b.spec.Limits, v)
		}
		return nil
	})
}

func (b *builder) container(data []byte) (c lifecycle.ContainerSpec, restartPolicy string, err error) {
	err = fields(data, func(n protowire.Number, v []byte) error {
		switch n {
		case containerName:
			c.Name = string(v)
		case containerRestart:
			restartPolicy = string(v)
		case containerResources:
			return b.resources(&c.Requests, &c.Limits, v)
		}
		return nil
	})
	return c, restartPolicy, err
}

func (b *builder) resources(requests, limits *lifecycle.Amounts, data []byte) error {
	return fields(data, func(n protowire.Number, v []byte) error {
		switch n {
		case resourcesRequests:
			return b.entry(requests, v)
		case resourcesLimits:
			return b.entry(limits, v)
		}
		return nil
	})
}

// entry reads one entry of a map of quantities.
func (b *builder) entry(into *lifecycle.Amounts, data []byte) error {
	name, quantity := "", ""
	err := fields(data, func(n protowire.Number, v []byte) error {
		switch n {
		case mapKey:
			name = string(v)
		case mapValue:
			return fields(v, func(n protowire.Number, v []byte) error {
				if n == quantityString {
					quantity = string(v)
				}
				return nil
			})
		}
		return nil
	})
	if err == nil {
		b.amount(into, name, quantity)
	}
	return err
}
