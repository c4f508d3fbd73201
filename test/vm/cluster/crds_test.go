package cluster_test

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trimtab/trimtab/test/vm/controlplane"
)

var (
	crds     = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	nodesGVR = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	nrts     = schema.GroupVersionResource{Group: "topology.node.k8s.io", Version: "v1alpha2", Resource: "noderesourcetopologies"}
	oldNRTs  = schema.GroupVersionResource{Group: "topology.node.k8s.io", Version: "v1alpha1", Resource: "noderesourcetopologies"}
	anything = map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
)

// nrtVersion returns a version of the CustomResourceDefinition with the fields that the tests need: v1alpha1 requires
// topologyPolicies and has no attributes of the object.
func nrtVersion(name string, stored bool) map[string]any {
	fields := map[string]any{
		"topologyPolicies": map[string]any{"type": "array", "items": map[string]any{"type": "string"}},
		"zones":            map[string]any{"type": "array", "items": anything},
	}
	required := []any{"zones"}
	if name == "v1alpha1" {
		required = append(required, "topologyPolicies")
	} else {
		fields["attributes"] = map[string]any{"type": "array", "items": anything}
	}
	return map[string]any{"name": name, "served": true, "storage": stored, "schema": map[string]any{
		"openAPIV3Schema": map[string]any{"type": "object", "required": required, "properties": fields},
	}}
}

// install adds a CustomResourceDefinition and waits until the API server serves it.
func install(t testing.TB, p *controlplane.Plane, r schema.GroupVersionResource, kind string, versions ...any) {
	t.Helper()
	name := r.Resource + "." + r.Group
	_, err := p.Dynamic(controlplane.Admin).Resource(crds).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": name, "annotations": map[string]any{"api-approved.kubernetes.io": "unapproved, a test"}},
		"spec": map[string]any{
			"group": r.Group, "scope": "Cluster", "versions": versions,
			"names": map[string]any{"kind": kind, "listKind": kind + "List", "plural": r.Resource, "singular": r.Resource + "x"},
		},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.Wait(name+" is served", func(ctx context.Context) error {
		_, err := p.Dynamic(controlplane.Admin).Resource(r).List(ctx, metav1.ListOptions{})
		return err
	})
}

// remove deletes a CustomResourceDefinition with its objects, and waits until the API server no longer serves it.
func remove(t *testing.T, p *controlplane.Plane, r schema.GroupVersionResource) {
	t.Helper()
	name := r.Resource + "." + r.Group
	if err := p.Dynamic(controlplane.Admin).Resource(crds).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.Wait(name+" is gone", func(ctx context.Context) error {
		if _, err := p.Dynamic(controlplane.Admin).Resource(r).List(ctx, metav1.ListOptions{}); err == nil {
			return errors.New("it is served")
		}
		return nil
	})
}

// makeNode adds a Node object.
func makeNode(t testing.TB, p *controlplane.Plane, name string) {
	t.Helper()
	node := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name}}}
	if _, err := p.Dynamic(controlplane.Admin).Resource(nodesGVR).Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
