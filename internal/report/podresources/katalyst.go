package podresources

import (
	"context"
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
)

// Numbers of the fields that Katalyst's PodResources API adds to the kubelet's API. The kubelet's API does not use
// these numbers, so clients of the kubelet's API skip the fields.
const (
	podRole        protowire.Number = 12 // a field of the message PodResources, as are the next three
	podType        protowire.Number = 13
	podLabels      protowire.Number = 14
	podAnnotations protowire.Number = 15
	resourcesField protowire.Number = 15 // a field of ContainerResources and AllocatableResourcesResponse
)

// The label and the annotation of a pod whose values Katalyst's API repeats in separate fields.
const (
	roleLabel      = "katalyst.kubewharf.io/pod_role"
	typeAnnotation = "katalyst.kubewharf.io/pod_type"
)

// Plugins reports the allocations of the node's resource plugins.
type Plugins interface {
	// Amounts returns what plugins have allocated to the containers of a pod, by container name.
	Amounts(podUID string) map[string][]lifecycle.PluginAmount
	// Allocatable returns what plugins can allocate.
	Allocatable(ctx context.Context) []lifecycle.PluginAmount
}

// addKatalystFields adds Katalyst's fields to out, the answer about a pod. own is the agent's state of the pod. plugins
// may be nil.
func addKatalystFields(out *v1.PodResources, own *nodeview.PodHoldings, plugins Plugins) {
	var b []byte
	b = appendText(b, podRole, own.Labels[roleLabel])
	b = appendText(b, podType, own.Annotations[typeAnnotation])
	b = appendMap(b, podLabels, own.Labels)
	b = appendMap(b, podAnnotations, own.Annotations)
	out.ProtoReflect().SetUnknown(b)
	var given map[string][]lifecycle.PluginAmount
	if plugins != nil {
		given = plugins.Amounts(own.UID)
	}
	for _, c := range out.GetContainers() {
		all := given[c.GetName()]
		i := slices.IndexFunc(own.Containers, func(o nodeview.ContainerHoldings) bool { return o.Name == c.GetName() })
		if i >= 0 {
			all = addAssigned(all, &own.Containers[i])
		}
		if len(all) > 0 {
			c.ProtoReflect().SetUnknown(containerFields.encode(all))
		}
	}
}

// addAssigned adds the CPUs and memory that the agent assigned to a container. It leaves out a resource that a plugin
// has allocated.
func addAssigned(all []lifecycle.PluginAmount, c *nodeview.ContainerHoldings) []lifecycle.PluginAmount {
	add := func(name string, byNode map[int]float64) {
		if len(byNode) == 0 || slices.ContainsFunc(all, func(r lifecycle.PluginAmount) bool { return r.Resource == name }) {
			return
		}
		one := lifecycle.PluginAmount{Resource: name, IsNodeResource: true, IsScalarResource: true}
		for _, node := range slices.Sorted(maps.Keys(byNode)) {
			one.Total += byNode[node]
			one.ByNode = append(one.ByNode, lifecycle.PluginQuantity{Value: byNode[node], Node: uint64(max(node, 0))}) //nolint:gosec // an id is not negative
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

// fieldNumbers has, for one of Katalyst's messages, the numbers of the protobuf fields with the amounts of a resource.
// The messages for a container and for the node have the same fields, with different numbers. total and nodes are the
// allocated or allocatable amount: in total, and by NUMA node. other and otherNodes are the amount at the container's
// creation or the node's capacity, again in total and by NUMA node.
type fieldNumbers struct{ total, nodes, other, otherNodes protowire.Number }

// The field numbers in Katalyst's message about a container, and in its message about the node.
var (
	containerFields = fieldNumbers{total: 4, nodes: 6, other: 5, otherNodes: 7}
	nodeFields      = fieldNumbers{total: 4, nodes: 5, other: 6, otherNodes: 7}
)

// encode encodes the resources of a container or of the node.
func (at fieldNumbers) encode(all []lifecycle.PluginAmount) (b []byte) {
	const name, perNode, scalar protowire.Number = 1, 2, 3
	for i := range all {
		r := &all[i]
		var m []byte
		m = appendText(m, name, r.Resource)
		m = appendBool(m, perNode, r.IsNodeResource)
		m = appendBool(m, scalar, r.IsScalarResource)
		m = appendDouble(m, at.total, r.Total)
		m = appendDouble(m, at.other, r.OtherTotal)
		for _, q := range r.ByNode {
			m = appendMessage(m, at.nodes, encodeQuantity(&q))
		}
		for _, q := range r.OtherByNode {
			m = appendMessage(m, at.otherNodes, encodeQuantity(&q))
		}
		b = appendMessage(b, resourcesField, m)
	}
	return b
}

// encodeQuantity encodes one part of an amount as Katalyst's message TopologyAwareQuantity.
func encodeQuantity(q *lifecycle.PluginQuantity) []byte {
	const (
		value, node, name, kind, level, annotations protowire.Number = 1, 2, 3, 4, 5, 6
	)
	b := appendDouble(nil, value, q.Value)
	if q.Node != 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, node, protowire.VarintType), q.Node)
	}
	b = appendText(b, name, q.Name)
	b = appendText(b, kind, q.Type)
	b = appendBool(b, level, q.Socket) // an enum: 0 is a NUMA node, and 1 is a socket
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
