package fleet

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/kube/configmaps"
)

// ConfigMaps are the ConfigMaps that agents read, by name.
type ConfigMaps struct {
	cluster   *Cluster
	Namespace string
	objects   map[string]*unstructured.Unstructured
}

// ReadConfigMaps reads the ConfigMaps of the agents' namespace.
func (c *Cluster) ReadConfigMaps(ctx context.Context, namespace string) (*ConfigMaps, error) {
	l, err := c.list(ctx, configMaps, namespace, configmaps.Label)
	if err != nil {
		return nil, err
	}
	m := &ConfigMaps{cluster: c, Namespace: namespace, objects: map[string]*unstructured.Unstructured{}}
	for i := range l {
		m.objects[l[i].GetName()] = &l[i]
	}
	return m, nil
}

// Text returns the configuration in a ConfigMap; "" if there is no such ConfigMap.
func (m *ConfigMaps) Text(name string) string { return textOf(m.objects[name]) }

// textOf returns the configuration in a ConfigMap; "" if o is nil.
func textOf(o *unstructured.Unstructured) string {
	if o == nil {
		return ""
	}
	text, _, _ := unstructured.NestedString(o.Object, "data", configmaps.DataKey)
	return text
}

// annotation returns the annotation of a ConfigMap with this key; "" if there is no such annotation or ConfigMap.
func (m *ConfigMaps) annotation(name, key string) string {
	if o := m.objects[name]; o != nil {
		return o.GetAnnotations()[key]
	}
	return ""
}

// Selector returns the node selector of a group; "" for an unknown group.
func (m *ConfigMaps) Selector(group string) string {
	return m.annotation(configmaps.GroupMapName(group), configmaps.SelectorAnnotation)
}

// Layers returns the configurations in the ConfigMaps for a node. group is the name of the ConfigMap of the node's
// group; "" if the node is in no group.
func (m *ConfigMaps) Layers(n Node) (l Layers, group string, err error) {
	own := slices.Collect(func(yield func(*unstructured.Unstructured) bool) {
		for _, o := range m.objects {
			if !yield(o) {
				return
			}
		}
	})
	// LayersFor returns an error in the cases in which the agent refuses the ConfigMaps: if two groups select the node,
	// or if a ConfigMap has an unknown name.
	if _, err := configmaps.LayersFor(own, n.Name, n.Labels); err != nil {
		return Layers{}, "", err
	}
	l = Layers{Cluster: m.Text(configmaps.ClusterMapName), Node: m.Text(configmaps.NodeMapName(n.Name))}
	for name, o := range m.objects {
		text := o.GetAnnotations()[configmaps.SelectorAnnotation]
		if text == "" || name == configmaps.ClusterMapName || name == configmaps.NodeMapName(n.Name) {
			continue
		}
		if s, err := labels.Parse(text); err == nil && s.Matches(labels.Set(n.Labels)) {
			l.Group, group = textOf(o), name
		}
	}
	return l, group, nil
}

// write creates or replaces the ConfigMap with this name. It replaces only the version that m has read, so that it
// overwrites no later change. Before the request, it calls change with the new object; change may be nil.
func (m *ConfigMaps) write(ctx context.Context, name, text string, change func(*unstructured.Unstructured)) error {
	to := m.cluster.objects.Resource(configMaps).Namespace(m.Namespace)
	o, verb := m.objects[name], "update"
	if o == nil {
		o, verb = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}, "create"
		o.SetName(name)
		o.SetNamespace(m.Namespace)
	}
	o = o.DeepCopy()
	marked := o.GetLabels()
	if marked == nil {
		marked = map[string]string{}
	}
	if marked[configmaps.Label] == "" {
		marked[configmaps.Label] = "true"
	}
	o.SetLabels(marked)
	if err := unstructured.SetNestedField(o.Object, text, "data", configmaps.DataKey); err != nil {
		return fmt.Errorf("ConfigMap %s: %w", name, err)
	}
	if change != nil {
		change(o)
	}
	var err error
	if verb == "create" {
		o, err = to.Create(ctx, o, metav1.CreateOptions{})
	} else {
		o, err = to.Update(ctx, o, metav1.UpdateOptions{})
	}
	if err != nil {
		return m.writeError(err, verb, name)
	}
	m.objects[name] = o
	return nil
}

// remove deletes a ConfigMap. It returns an error if the ConfigMap has changed since m has read it.
func (m *ConfigMaps) remove(ctx context.Context, name string) error {
	o := m.objects[name]
	version := o.GetResourceVersion()
	err := m.cluster.objects.Resource(configMaps).Namespace(m.Namespace).Delete(ctx, name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}})
	if err != nil && !apierrors.IsNotFound(err) {
		return m.writeError(err, "delete", name)
	}
	delete(m.objects, name)
	return nil
}

// writeError converts the error of a write request to an error with advice.
func (m *ConfigMaps) writeError(err error, verb, name string) error {
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return fmt.Errorf("ConfigMap %s/%s was changed by another user or program while this command ran; run the command again: it starts from the new content", m.Namespace, name)
	case apierrors.IsInvalid(err), apierrors.IsRequestEntityTooLargeError(err):
		return fmt.Errorf("ConfigMap %s/%s: %w", m.Namespace, name, err)
	}
	return m.cluster.requestError(err, verb, "configmaps", m.Namespace)
}

// version returns the name and the version of a ConfigMap, in the form in which an agent's status lists its layers. The
// version is "" if there is no such ConfigMap.
func (m *ConfigMaps) version(name string) (layer, version string) {
	o := m.objects[name]
	if o == nil {
		return "ConfigMap " + m.Namespace + "/" + name, ""
	}
	return configmaps.Source(o), o.GetResourceVersion()
}

// validate returns an error if an agent would refuse a ConfigMap with this text. name is the name of the text in the
// error.
func validate(name, text string) error {
	_, _, err := config.Merge(config.Layer{Name: name, Data: []byte(text), Shared: true})
	return err
}
