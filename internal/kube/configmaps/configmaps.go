// Package configmaps has the names of the ConfigMaps with configuration for agents. It determines which ConfigMaps
// apply to a node, and in which order. It sends no request.
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
	// Label marks the ConfigMaps that agents read, with any value. Agents read no other ConfigMaps.
	Label = "trimtab.io/config"
	// SelectorAnnotation is the annotation with which the ConfigMap of a group selects the nodes of the group, in the
	// syntax of `kubectl get nodes --selector`.
	SelectorAnnotation = "trimtab.io/node-selector"
	// DataKey is the key in a ConfigMap's data that has the configuration.
	DataKey = "config.yaml"
	// ClusterMapName is the name of the ConfigMap for all nodes.
	ClusterMapName = "trimtab-cluster"

	// groupPrefix and nodePrefix are the parts of ConfigMap names before the name of a group or node.
	groupPrefix = "trimtab-group-"
	nodePrefix  = "trimtab-node-"
)

// GroupMapName returns the name of the ConfigMap of a group of nodes.
func GroupMapName(name string) string { return groupPrefix + name }

// NodeMapName returns the name of the ConfigMap of one node.
func NodeMapName(name string) string { return nodePrefix + name }

// Refusal is the error for an invalid ConfigMap.
type Refusal struct {
	Namespace, Name string // of the ConfigMap
	Reason          string // why the ConfigMap is invalid
}

// Error returns the name of the ConfigMap, and the reason.
func (r *Refusal) Error() string { return source(r.Namespace, r.Name) + ": " + r.Reason }

// source returns the text that names a ConfigMap in messages and in `trimtab config print --sources`.
func source(namespace, name string) string { return "ConfigMap " + namespace + "/" + name }

// Source returns the text that names a ConfigMap in messages and in `trimtab config print --sources`.
func Source(o *unstructured.Unstructured) string { return source(o.GetNamespace(), o.GetName()) }

// LayersFor returns the configurations for a node from ConfigMaps with the label Label: first the one for the cluster,
// then the one for the node's group, then the one for the node. A later one has priority. The error is a *Refusal if a
// ConfigMap has a wrong name, has no configuration or has no valid selector, or if the node is in two groups. Then the
// node uses no ConfigMap, because its intended configuration is unknown.
func LayersFor(objects []*unstructured.Unstructured, node string, nodeLabels map[string]string) ([]config.Layer, error) {
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
		return nil, newRefusal(groups[1], "its node selector and the node selector of ConfigMap %[2]s both match node %[1]s, but a node may be in only one group; change the annotation %[3]s of one of the two ConfigMaps",
			node, groups[0].GetName(), SelectorAnnotation)
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

// rankOf returns 0 for the ConfigMap of the cluster, 1 for the ConfigMap of the node's group, 2 for the ConfigMap of
// the node, and -1 for a ConfigMap of other nodes.
func rankOf(o *unstructured.Unstructured, node string, nodeLabels map[string]string) (int, error) {
	switch name := o.GetName(); {
	case name == ClusterMapName:
		return 0, nil
	case name == NodeMapName(node):
		return 2, nil
	case strings.HasPrefix(name, nodePrefix) && len(name) > len(nodePrefix):
		return -1, nil
	case strings.HasPrefix(name, groupPrefix) && len(name) > len(groupPrefix):
		text := o.GetAnnotations()[SelectorAnnotation]
		s, err := labels.Parse(text)
		if err != nil {
			return -1, newRefusal(o, "the annotation %s is not a label selector: %v", SelectorAnnotation, err)
		}
		if s.Empty() {
			return -1, newRefusal(o, "it does not select any nodes for its group; set the annotation %s, e.g. pool=latency", SelectorAnnotation)
		}
		if s.Matches(labels.Set(nodeLabels)) {
			return 1, nil
		}
		return -1, nil
	}
	return -1, newRefusal(o, "it has the label %s, but its name is not %s, %sNAME or %sNODE; rename it, or remove the label",
		Label, ClusterMapName, groupPrefix, nodePrefix)
}

// layer returns the configuration in a ConfigMap.
func layer(o *unstructured.Unstructured) (config.Layer, error) {
	data, _, err := unstructured.NestedStringMap(o.Object, "data")
	if err != nil {
		return config.Layer{}, newRefusal(o, "%v", err)
	}
	text, ok := data[DataKey]
	if !ok {
		return config.Layer{}, newRefusal(o, "its data has no key %s", DataKey)
	}
	return config.Layer{Name: Source(o), Data: []byte(text), Version: o.GetResourceVersion(), Shared: true}, nil
}

// newRefusal returns the *Refusal of a ConfigMap.
func newRefusal(o *unstructured.Unstructured, format string, args ...any) error {
	return &Refusal{o.GetNamespace(), o.GetName(), fmt.Sprintf(format, args...)}
}
