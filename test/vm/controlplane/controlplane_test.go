package controlplane

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestStart: the API server authorises by user, and keeps its objects over a restart.
func TestStart(t *testing.T) {
	p := Start(t)
	nodes := schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	node := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "n1"}}}
	if _, err := p.Dynamic("n2").Resource(nodes).Create(t.Context(), node, metav1.CreateOptions{}); err == nil {
		t.Error("the kubelet of n2 made the node n1")
	}
	if _, err := p.Dynamic("n1").Resource(nodes).Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	p.StopServer()
	if _, err := p.Dynamic(Admin).Resource(nodes).List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("a stopped API server answers")
	}
	p.StartServer()
	p.Wait("the node is there again", func(ctx context.Context) error {
		_, err := p.Dynamic(Admin).Resource(nodes).Get(ctx, "n1", metav1.GetOptions{})
		return err
	})
}
