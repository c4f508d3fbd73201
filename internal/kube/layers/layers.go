// Package layers watches the objects of the API server that configure a node, and
// passes their content on as layers of a configuration. It merges and applies nothing.
package layers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/kube"
	"github.com/trimtab/trimtab/internal/kube/configmaps"
	"github.com/trimtab/trimtab/internal/kube/koordinator"
)

// debounce is how long all objects must be unchanged before the watch calls onChange. `kubectl apply` of two ConfigMaps
// writes one after the other, and onChange must get both changes in one call.
const debounce = 300 * time.Millisecond

// NodeLayers is the configuration for this node from objects of the API server, as layers.
type NodeLayers struct {
	// Layers has the layers. A later layer has priority over an earlier one.
	Layers []config.Layer
	// Err is why the agent cannot use the layers, a *configmaps.Refusal; nil if it can.
	Err error
	// NotUnderstood lists objects for this node that have no effect in Trimtab. They are objects of other node agents,
	// such as Koordinator. If only some settings of an object have no effect, NotUnderstood lists these settings.
	NotUnderstood []string
}

// Watch is a kube.Service that watches the objects that configure a node.
type Watch struct {
	client   *kube.Client
	onChange func(NodeLayers)
	dirty    chan struct{} // of capacity 1: an object has changed

	otherResources []otherResource // the watched resources of other node agents

	mu         sync.Mutex // guards the fields below
	configMaps map[string]*unstructured.Unstructured
	node       *unstructured.Unstructured              // labels and annotations; nil while there is no such Node
	others     map[string][]*unstructured.Unstructured // the objects of otherResources, by resource name
	lastErrs   map[string]error                        // error of the last request for each resource
	listed     map[string]bool                         // the resources that the server has listed completely
}

// New makes a watch of a node's objects. alsoRead is the value of the key cluster.config.alsoRead. The watch calls
// onChange with the layers from all objects: when it knows all objects, and after each change. Calls do not overlap.
func New(c *kube.Client, alsoRead []string, onChange func(NodeLayers)) *Watch {
	return &Watch{
		client: c, onChange: onChange, dirty: make(chan struct{}, 1), otherResources: othersOf(alsoRead), others: map[string][]*unstructured.Unstructured{},
		configMaps: map[string]*unstructured.Unstructured{}, lastErrs: map[string]error{}, listed: map[string]bool{},
	}
}

// The resources of Kubernetes itself that the watch reads.
const (
	configMapResource = "configmaps"
	nodeResource      = "nodes"
)

// Run watches until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	services := []kube.Service{
		resourceWatch{w, configMapResource, kube.Selection{
			Resource: schema.GroupVersionResource{Version: "v1", Resource: configMapResource}, Namespace: w.client.Namespace, Labels: configmaps.Label,
		}},
		resourceWatch{w, nodeResource, kube.Selection{
			Resource: schema.GroupVersionResource{Version: "v1", Resource: nodeResource}, Fields: "metadata.name=" + w.client.Node,
		}},
		forwarder{w},
	}
	for _, o := range w.otherResources {
		s := kube.Selection{Resource: o.resource}
		if o.named {
			s.Fields = "metadata.name=" + w.client.Node
		}
		services = append(services, crdWatch{resourceWatch{w, o.resource.Resource, s}})
	}
	kube.Run(ctx, services...)
}

// Waiting returns which object is still missing before the watch can call onChange; "" if none is missing.
func (w *Watch) Waiting() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	resources := []string{configMapResource, nodeResource}
	for _, o := range w.otherResources {
		resources = append(resources, o.resource.Resource)
	}
	for _, resource := range resources {
		if !w.listed[resource] {
			if err := w.lastErrs[resource]; err != nil {
				return fmt.Sprintf("%s: %v", resource, err)
			}
			return resource + ": the API server has not answered yet"
		}
	}
	if w.node == nil {
		return fmt.Sprintf("there is no Node %s (cluster.nodeName)", w.client.Node)
	}
	return ""
}

// currentLayers returns the layers from the current objects. The bool is false while an object is missing.
func (w *Watch) currentLayers() (NodeLayers, bool) {
	if w.Waiting() != "" {
		return NodeLayers{}, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var objects []*unstructured.Unstructured
	for _, o := range w.configMaps {
		objects = append(objects, o)
	}
	layers, err := configmaps.LayersFor(objects, w.client.Node, w.node.GetLabels())
	if err != nil {
		return NodeLayers{Err: err}, true
	}
	below, unknown := w.readOthers()
	return NodeLayers{Layers: append(below, layers...), NotUnderstood: unknown}, true
}

// Identity returns the UID and the resource version of a ConfigMap in the agent's namespace; "" if the ConfigMap does
// not exist. The name has the form NAMESPACE/NAME.
func (w *Watch) Identity(name string) (uid, version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, name, _ = strings.Cut(name, "/")
	if o := w.configMaps[name]; o != nil {
		return string(o.GetUID()), o.GetResourceVersion()
	}
	return "", ""
}

// changeAndWake runs a function that changes the fields that mu guards, and wakes the forwarder.
func (w *Watch) changeAndWake(do func()) {
	w.mu.Lock()
	do()
	w.mu.Unlock()
	select {
	case w.dirty <- struct{}{}:
	default:
	}
}

// forwarder calls onChange after changes of objects.
type forwarder struct{ *Watch }

// Run calls onChange after changes of objects, until ctx ends.
func (h forwarder) Run(ctx context.Context) {
	still := time.NewTimer(time.Hour)
	defer still.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.dirty:
			still.Reset(debounce)
		case <-still.C:
			if s, ok := h.currentLayers(); ok {
				h.onChange(s)
			}
		}
	}
}

// resourceWatch is the watch of one resource.
type resourceWatch struct {
	*Watch

	resource  string
	selection kube.Selection
}

// Run watches the resource until ctx ends.
func (f resourceWatch) Run(ctx context.Context) {
	f.selection.OnResult = func(err error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.lastErrs[f.resource] = err
	}
	f.client.ListAndWatch(ctx, f.selection, f)
}

// Listed replaces all stored objects of the resource by the server's list. It implements kube.Handler.
func (f resourceWatch) Listed(objects []*unstructured.Unstructured) {
	f.changeAndWake(func() {
		f.listed[f.resource] = true
		if f.resource == configMapResource {
			clear(f.configMaps)
		}
		delete(f.others, f.resource)
		for _, o := range objects {
			f.store(o)
		}
	})
}

// Changed stores a new or changed object. It implements kube.Handler.
func (f resourceWatch) Changed(o *unstructured.Unstructured) { f.changeAndWake(func() { f.store(o) }) }

// Deleted removes an object. It implements kube.Handler. It does not remove a Node: the agent continues to use the
// labels of the deleted Node until the Node is registered again.
func (f resourceWatch) Deleted(o *unstructured.Unstructured) {
	f.changeAndWake(func() {
		if f.resource == configMapResource {
			delete(f.configMaps, o.GetName())
		}
		f.others[f.resource] = slices.DeleteFunc(f.others[f.resource], hasNameOf(o))
	})
}

// store stores the fields of an object that the watch needs. The caller holds mu.
func (f resourceWatch) store(o *unstructured.Unstructured) {
	if f.resource == topologyResource {
		koordinator.DropOwnAnnotations(o)
		o = &unstructured.Unstructured{Object: map[string]any{"metadata": o.Object["metadata"]}}
	}
	o.SetManagedFields(nil)
	switch f.resource {
	case configMapResource:
		f.configMaps[o.GetName()] = o
	case nodeResource:
		if o.GetName() == f.client.Node {
			f.node = &unstructured.Unstructured{Object: map[string]any{}}
			f.node.SetLabels(o.GetLabels())
			f.node.SetAnnotations(o.GetAnnotations())
		}
	default:
		f.others[f.resource] = append(slices.DeleteFunc(f.others[f.resource], hasNameOf(o)), o)
	}
}

// hasNameOf returns a function that reports whether an object has the namespace and the name of o.
func hasNameOf(o *unstructured.Unstructured) func(*unstructured.Unstructured) bool {
	return func(other *unstructured.Unstructured) bool {
		return other.GetNamespace() == o.GetNamespace() && other.GetName() == o.GetName()
	}
}

// SameLayers reports whether two lists have layers with the same names and data.
func SameLayers(a, b []config.Layer) bool {
	return slices.EqualFunc(a, b, func(a, b config.Layer) bool {
		return a.Name == b.Name && strings.Compare(string(a.Data), string(b.Data)) == 0
	})
}
