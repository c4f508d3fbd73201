package podresources

import (
	"context"
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/trimtab/trimtab/internal/nodeview"
)

// Katalyst's PodResources API has fields that the kubelet's does not have, with numbers that are free
// there. A client of the kubelet's API skips them. They are:
const (
	podRole        protowire.Number = 12 // of PodResources
	podType        protowire.Number = 13
	podLabels      protowire.Number = 14
	podAnnotations protowire.Number = 15
	resources      protowire.Number = 15 // of ContainerResources and AllocatableResourcesResponse
)

// Keys of pods that Katalyst's API has in fields of their own.
const (
	roleLabel      = "katalyst.kubewharf.io/pod_role"
	typeAnnotation = "katalyst.kubewharf.io/pod_type"
)

// Quantity is an amount of a resource on one NUMA node or socket. Name and type are those of a
// device that it comes from; empty for none.
type Quantity struct {
	Value       float64
	Node        uint64
	Name, Type  string
	Socket      bool // Node is a socket
	Annotations map[string]string
}

// Resource is an amount of a resource that a container has, or that the node has.
type Resource struct {
	Name             string
	OfNode, IsScalar bool
	// Total is the whole amount, and ByNode its parts. The others are those at the container's
	// creation, or the node's capacity.
	Total, OtherTotal   float64
	ByNode, OtherByNode []Quantity
}

// Plugins are the resource plugins of the node.
type Plugins interface {
	// Resources returns what plugins have allocated for the containers of a pod, by container name.
	Resources(podUID string) map[string][]Resource
	// Allocatable returns what plugins can allocate.
	Allocatable(ctx context.Context) []Resource
}

// extendPod adds Katalyst's fields to a pod.
func extendPod(out *v1.PodResources, own *nodeview.PodHoldings, plugins Plugins) {
	var b []byte
	b = appendText(b, podRole, own.Labels[roleLabel])
	b = appendText(b, podType, own.Annotations[typeAnnotation])
	b = appendMap(b, podLabels, own.Labels)
	b = appendMap(b, podAnnotations, own.Annotations)
	out.ProtoReflect().SetUnknown(b)
	var given map[string][]Resource
	if plugins != nil {
		given = plugins.Resources(own.UID)
	}
	for _, c := range out.GetContainers() {
		all := given[c.GetName()]
		i := slices.IndexFunc(own.Containers, func(o nodeview.ContainerHoldings) bool { return o.Name == c.GetName() })
		if i >= 0 {
			all = withOwn(all, &own.Containers[i])
		}
		if len(all) > 0 {
			c.ProtoReflect().SetUnknown(appendResources(nil, all))
		}
	}
}

// withOwn adds CPUs and memory that the agent assigned, if no plugin allocates them.
func withOwn(all []Resource, c *nodeview.ContainerHoldings) []Resource {
	add := func(name string, byNode map[int]float64) {
		if len(byNode) == 0 || slices.ContainsFunc(all, func(r Resource) bool { return r.Name == name }) {
			return
		}
		one := Resource{Name: name, OfNode: true, IsScalar: true}
		for _, node := range slices.Sorted(maps.Keys(byNode)) {
			one.Total += byNode[node]
			one.ByNode = append(one.ByNode, Quantity{Value: byNode[node], Node: uint64(max(node, 0))}) //nolint:gosec // an id is not negative
		}
		one.OtherTotal, one.OtherByNode = one.Total, one.ByNode
		all = append(slices.Clip(all), one)
	}
	cpus := map[int]float64{}
	for _, n := range c.CPUNodes {
		cpus[n]++
	}
	add("cpu", cpus)
	memory := map[string]map[int]float64{}
	for _, m := range c.Memory {
		if memory[m.Type] == nil {
			memory[m.Type] = map[int]float64{}
		}
		memory[m.Type][m.Node] += float64(m.Bytes)
	}
	for _, name := range slices.Sorted(maps.Keys(memory)) {
		add(name, memory[name])
	}
	return all
}

// appendResources appends what a container has.
func appendResources(b []byte, all []Resource) []byte {
	const (
		name, ofNode, scalar       protowire.Number = 1, 2, 3
		total, other, nodes, first protowire.Number = 4, 5, 6, 7
	)
	for i := range all {
		r := &all[i]
		var m []byte
		m = appendText(m, name, r.Name)
		m = appendBool(m, ofNode, r.OfNode)
		m = appendBool(m, scalar, r.IsScalar)
		m = appendDouble(m, total, r.Total)
		m = appendDouble(m, other, r.OtherTotal)
		for _, q := range r.ByNode {
			m = appendMessage(m, nodes, q.encode())
		}
		for _, q := range r.OtherByNode {
			m = appendMessage(m, first, q.encode())
		}
		b = appendMessage(b, resources, m)
	}
	return b
}

// appendAllocatable appends what the node has. The amounts of this message are in another order.
func appendAllocatable(b []byte, all []Resource) []byte {
	const (
		name, ofNode, scalar       protowire.Number = 1, 2, 3
		total, nodes, other, first protowire.Number = 4, 5, 6, 7
	)
	for i := range all {
		r := &all[i]
		var m []byte
		m = appendText(m, name, r.Name)
		m = appendBool(m, ofNode, r.OfNode)
		m = appendBool(m, scalar, r.IsScalar)
		m = appendDouble(m, total, r.Total)
		for _, q := range r.ByNode {
			m = appendMessage(m, nodes, q.encode())
		}
		m = appendDouble(m, other, r.OtherTotal)
		for _, q := range r.OtherByNode {
			m = appendMessage(m, first, q.encode())
		}
		b = appendMessage(b, resources, m)
	}
	return b
}

func (q *Quantity) encode() []byte {
	const (
		value, node, name, kind, level, annotations protowire.Number = 1, 2, 3, 4, 5, 6
	)
	b := appendDouble(nil, value, q.Value)
	if q.Node != 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, node, protowire.VarintType), q.Node)
	}
	b = appendText(b, name, q.Name)
	b = appendText(b, kind, q.Type)
	b = appendBool(b, level, q.Socket) // the enum has 0 for NUMA nodes and 1 for sockets
	return appendMap(b, annotations, q.Annotations)
}

func appendText(b []byte, n protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), text)
}

func appendBool(b []byte, n protowire.Number, is bool) []byte {
	if !is {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), 1)
}

func appendDouble(b []byte, n protowire.Number, v float64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendFixed64(protowire.AppendTag(b, n, protowire.Fixed64Type), math.Float64bits(v))
}

func appendMessage(b []byte, n protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), m)
}

func appendMap(b []byte, n protowire.Number, m map[string]string) []byte {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		b = appendMessage(b, n, appendText(appendText(nil, 1, key), 2, m[key]))
	}
	return b
}
