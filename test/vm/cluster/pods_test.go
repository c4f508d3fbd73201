package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trimtab/trimtab/internal/kube"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/podspec"
	"github.com/trimtab/trimtab/test/vm/controlplane"
)

var podsOf = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// podOn returns a pod on a node; annotations are pairs of key and value.
func podOn(node, name string, annotations ...string) *unstructured.Unstructured {
	notes := map[string]any{}
	for i := 0; i+1 < len(annotations); i += 2 {
		notes[annotations[i]] = annotations[i+1]
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": name, "namespace": "default", "annotations": notes},
		"spec": map[string]any{
			"nodeName": node, "automountServiceAccountToken": false,
			"containers": []any{map[string]any{
				"name": "app", "image": "app", "resources": map[string]any{"requests": map[string]any{"cpu": "1500m"}},
			}},
		},
	}}
}

// specChain is a node's chain of spec sources with the API server as its only source.
type specChain struct {
	*podspec.Chain

	mu      sync.Mutex
	changed map[string]int
}

func follow(t *testing.T, p *controlplane.Plane, node string) *specChain {
	t.Helper()
	c, err := kube.Connect(kube.Options{Kubeconfig: p.Kubeconfig(node, node+"-token"), Node: node, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	h := &specChain{changed: map[string]int{}}
	h.Chain = podspec.New(podspec.Options{
		Sources: []podspec.SpecSource{podspec.NewAPIServer(podspec.APIServerOptions{URL: c.Server, Client: c.HTTP, Node: node, OnResult: c.RecordResult})},
		Wait:    time.Minute, Retry: 10 * time.Millisecond,
		Changed: func(uids []string) {
			h.mu.Lock()
			defer h.mu.Unlock()
			for _, uid := range uids {
				h.changed[uid]++
			}
		},
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- h.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the chain ended: %v", err)
		}
	})
	return h
}

// up waits until the source works, or has failed.
func (h *specChain) up(p *controlplane.Plane, want bool) {
	p.Wait(fmt.Sprintf("the API server answers: %t", want), func(context.Context) error {
		if s := h.States()[0]; s.Up != want {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// TestPods: the chain gets specs of created, edited and deleted pods of its node from the API server, also after a gap.
func TestPods(t *testing.T) {
	t.Parallel()
	p := controlplane.Start(t, "--disable-admission-plugins=ServiceAccount")
	admin := p.Dynamic(controlplane.Admin).Resource(podsOf).Namespace("default")
	create := func(pod *unstructured.Unstructured) string {
		t.Helper()
		made, err := admin.Create(t.Context(), pod, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return string(made.GetUID())
	}
	for _, n := range []string{"n1", "n2"} {
		node := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": n}}}
		if _, err := p.Dynamic(n).Resource(nodesOf).Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	before := create(podOn("n1", "before"))
	h := follow(t, p, "n1")
	h.up(p, true)
	if s := h.Spec(before); s == nil || s.Containers[0].Requests[lifecycle.ResourceCPU] != 1500 || s.QoS != "Burstable" || s.From != lifecycle.FromAPIServer {
		t.Fatalf("%+v", s)
	}

	// A pod is created while the runtime waits for its spec.
	other, uid := create(podOn("n2", "elsewhere")), create(podOn("n1", "web"))
	h.Await(t.Context(), &lifecycle.Pod{UID: uid})
	if h.Spec(uid) == nil || h.Spec(other) != nil {
		t.Fatalf("n1's pod: %v; n2's pod: %v", h.Spec(uid), h.Spec(other))
	}

	// While the server is stopped, one pod is deleted and another created.
	p.StopServer()
	h.up(p, false)
	if h.Spec(uid) == nil {
		t.Error("the specs are lost without the server")
	}
	p.StartServer("--disable-admission-plugins=ServiceAccount")
	zero := int64(0)
	if err := admin.Delete(t.Context(), "web", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	late := create(podOn("n1", "late"))
	h.up(p, true)
	p.Wait("the chain has the changes of the gap", func(context.Context) error {
		if h.Spec(uid) != nil || h.Spec(late) == nil {
			return fmt.Errorf("deleted: %v; new: %v", h.Spec(uid), h.Spec(late))
		}
		return nil
	})

	// The chain reports an edited annotation as a change.
	patch := []byte(`{"metadata":{"annotations":{"volcano.sh/quota-burst-time":"2000"}}}`)
	if _, err := admin.Patch(t.Context(), "late", "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	p.Wait("the chain has the edit", func(context.Context) error {
		if s := h.Spec(late); s.Meta.Annotations["volcano.sh/quota-burst-time"] != "2000" {
			return fmt.Errorf("%+v", s.Meta)
		}
		return nil
	})
}

// TestForbidden: the error names the missing right.
func TestForbidden(t *testing.T) {
	t.Parallel()
	p := controlplane.Start(t)
	c, err := kube.Connect(kube.Options{Kubeconfig: p.Kubeconfig("nobody", "n1-token"), Node: "n2", Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	a := podspec.NewAPIServer(podspec.APIServerOptions{URL: c.Server, Client: c.HTTP, Node: "n2", OnResult: c.RecordResult})
	err = a.Watch(t.Context(), func(podspec.Update) {})
	if err == nil || !strings.Contains(err.Error(), `give the agent's role "list" and "watch" on pods`) {
		t.Errorf("%v", err)
	}
	if reached, failed := c.State(); failed == nil || !reached.IsZero() {
		t.Errorf("reached %v, failed %v", reached, failed)
	}
}

var nodesOf = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
