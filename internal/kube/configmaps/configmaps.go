// Package configmaps owns the names of the ConfigMaps that hold configuration for
// more than one node, and says which of them are for a node, in which order. It reads
// objects that others fetched, and sends no request.
package configmaps

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/trimtab/trimtab/internal/config"
)

const (
	// Label marks the ConfigMaps that agents read; its value does not matter. What
	// does not have it is not seen.
	Label = "trimtab.io/config"
	// Selector is the annotation of a group's ConfigMap: which nodes are in the
	// group, as `kubectl get nodes --selector` takes it.
	Selector = "trimtab.io/node-selector"
	// Key is the key of a ConfigMap's data that holds the configuration.
	Key = "config.yaml"
	// Cluster is the name of the ConfigMap for all nodes.
	Cluster = "trimtab-cluster"

	groupPrefix = "trimtab-group-"
	nodePrefix  = "trimtab-node-"
)

// Group returns the name of the ConfigMap of a group of nodes.
func Group(name string) string { return groupPrefix + name }

// Node returns the name of the ConfigMap of one node.
func Node(name string) string { return nodePrefix + name }

// Refusal is a ConfigMap that cannot be used, and why.
type Refusal struct {
	Namespace, Name string
	Reason          string
}

// Error names the ConfigMap.
func (r *Refusal) Error() string { return source(r.Namespace, r.Name) + ": " + r.Reason }

// source is how messages and `trimtab config print --sources` name a ConfigMap.
func source(namespace, name string) string { return "ConfigMap " + namespace + "/" + name }

// Source is how messages and `trimtab config print --sources` name a ConfigMap.
func Source(o *unstructured.Unstructured) string { return source(o.GetNamespace(), o.GetName()) }

// For returns the layers that ConfigMaps with the label hold for a node, lowest
// first: the cluster's, its group's, its own. The error is a *Refusal: of a
// ConfigMap that does not say whom it is for, that has no configuration, or of a second
// group that has the node. Then none of them may be used, since nobody knows what
// was meant for this node.
func For(objects []*unstructured.Unstructured, node string, nodeLabels map[string]string) ([]config.Layer, error) {
	var byRank [3][]*unstructured.Unstructured
	sorted := slices.SortedFunc(slices.Values(objects), func(a, b *unstructured.Unstructured) int {
		return strings.Compare(a.GetName(), b.GetName())
	})
	for _, o := range sorted {
		rank, err := rankOf(o, node, nodeLabels)
		if err != nil {
			return nil, err
		}
		if rank >= 0 {
			byRank[rank] = append(byRank[rank], o)
		}
	}
	if groups := byRank[1]; len(groups) > 1 {
		return nil, refuse(groups[1], "node %s is in its group and in that of %s too; change the annotation %s of one of them",
			node, groups[0].GetName(), Selector)
	}
	var layers []config.Layer
	for _, of := range byRank {
		for _, o := range of {
			l, err := layer(o)
			if err != nil {
				return nil, err
			}
			layers = append(layers, l)
		}
	}
	return layers, nil
}

// rankOf says where a ConfigMap stands among the layers of a node; -1 if it is not
// for it.
func rankOf(o *unstructured.Unstructured, node string, nodeLabels map[string]string) (int, error) {
	switch name := o.GetName(); {
	case name == Cluster:
		return 0, nil
	case name == Node(node):
		return 2, nil
	case strings.HasPrefix(name, nodePrefix) && len(name) > len(nodePrefix):
		return -1, nil
	case strings.HasPrefix(name, groupPrefix) && len(name) > len(groupPrefix):
		text := o.GetAnnotations()[Selector]
		s, err := labels.Parse(text)
		if err != nil {
			return -1, refuse(o, "the annotation %s is no selector of labels: %v", Selector, err)
		}
		if s.Empty() {
			return -1, refuse(o, "it does not say which nodes are in its group; set the annotation %s, e.g. pool=latency", Selector)
		}
		if s.Matches(labels.Set(nodeLabels)) {
			return 1, nil
		}
		return -1, nil
	}
	return -1, refuse(o, "it has the label %s and none of the names %s, %sNAME, %sNODE; rename it, or remove the label",
		Label, Cluster, groupPrefix, nodePrefix)
}

// layer reads the configuration in a ConfigMap.
func layer(o *unstructured.Unstructured) (config.Layer, error) {
	data, _, err := unstructured.NestedStringMap(o.Object, "data")
	if err != nil {
		return config.Layer{}, refuse(o, "%v", err)
	}
	text, ok := data[Key]
	if !ok {
		return config.Layer{}, refuse(o, "its data has no key %s", Key)
	}
	return config.Layer{Name: Source(o), Data: []byte(text), Version: o.GetResourceVersion(), Shared: true}, nil
}

func refuse(o *unstructured.Unstructured, format string, args ...any) error {
	return &Refusal{o.GetNamespace(), o.GetName(), fmt.Sprintf(format, args...)}
}
