package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trimtab/trimtab/internal/kube/publish"
	"github.com/trimtab/trimtab/internal/report/zones"
	"github.com/trimtab/trimtab/test/vm/controlplane"
)

var cnrs = schema.GroupVersionResource{Group: "node.katalyst.kubewharf.io", Version: "v1alpha1", Resource: "customnoderesources"}

// cnrVersion returns a version of the CustomResourceDefinition with the fields of katalyst-api that the tests need.
func cnrVersion(name string) map[string]any {
	text := map[string]any{"type": "string"}
	zone := map[string]any{"type": "object", "required": []any{"resources", "type"}, "properties": map[string]any{
		"type": text, "name": text, "resources": anything, "children": map[string]any{"x-kubernetes-preserve-unknown-fields": true},
	}}
	return map[string]any{
		"name": name, "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}},
		"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
			"spec": anything,
			"status": map[string]any{"type": "object", "required": []any{"resources", "topologyPolicy"}, "properties": map[string]any{
				"resources": anything, "topologyPolicy": text, "topologyZone": map[string]any{"type": "array", "items": zone},
				"conditions": map[string]any{"type": "array", "items": anything},
			}},
		}}},
	}
}

// katalyst starts a report of a node as CustomNodeResource.
func katalyst(t *testing.T, kubeconfig, node string) *reporter {
	t.Helper()
	return start(t, kubeconfig, node, quick, publish.Report{
		Kind: "CustomNodeResource", Resource: cnrs, Key: "status.topologyZone", HasStatusSubresource: true,
	}, func(n zones.Node) (map[string]string, map[string]any) {
		return nil, n.CNR(zones.TopologyManager{Policy: "best-effort", Scope: "container"})
	})
}

// takes waits until the object says that pods have taken this many CPUs, and returns it.
func takes(t *testing.T, p *controlplane.Plane, node, taken string) *unstructured.Unstructured {
	t.Helper()
	var o *unstructured.Unstructured
	p.Wait(fmt.Sprintf("%s reports %s taken CPUs", node, taken), func(ctx context.Context) (err error) {
		if o, err = p.Dynamic(controlplane.Admin).Resource(cnrs).Get(ctx, node, metav1.GetOptions{}); err != nil {
			return err
		}
		sockets, _, _ := unstructured.NestedSlice(o.Object, "status", "topologyZone")
		if len(sockets) == 0 {
			return errors.New("no zones")
		}
		got := ""
		numa, _, _ := unstructured.NestedSlice(sockets[0].(map[string]any), "children")
		all, _, _ := unstructured.NestedSlice(numa[0].(map[string]any), "allocations")
		for _, a := range all {
			if a.(map[string]any)["consumer"] == "d/p/u" {
				got, _, _ = unstructured.NestedString(a.(map[string]any), "requests", "cpu")
			}
		}
		if got != taken {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	return o
}

// TestKatalyst: the agent creates the CustomNodeResource with its status if the API server serves the right version
// with a status subresource. It leaves fields of other programs alone.
func TestKatalyst(t *testing.T) {
	t.Parallel()
	p := controlplane.Start(t)
	makeNode(t, p, "n1")
	makeNode(t, p, "n2")
	admin := p.Kubeconfig("agent", controlplane.Admin+"-token")
	r := katalyst(t, admin, "n1")
	r.reports(t, p, "no CustomResourceDefinition customnoderesources.node.katalyst.kubewharf.io")
	newer := cnrs
	newer.Version = "v1beta1"
	install(t, p, newer, "CustomNodeResource", cnrVersion("v1beta1"))
	r.reports(t, p, "serves only v1beta1, but the agent needs v1alpha1")
	remove(t, p, newer)
	plain := cnrVersion("v1alpha1")
	delete(plain, "subresources")
	install(t, p, cnrs, "CustomNodeResource", plain)
	r.reports(t, p, "has no subresource status")
	remove(t, p, cnrs)
	install(t, p, cnrs, "CustomNodeResource", cnrVersion("v1alpha1"))
	takes(t, p, "n1", "")
	r.set(1500)
	o := takes(t, p, "n1", "2500m")
	if refs := o.GetOwnerReferences(); len(refs) != 1 || refs[0].Kind != "Node" {
		t.Errorf("it belongs to %v", refs)
	}

	// Conditions and taints of Katalyst's controllers stay, and cause no write of the agent.
	objects := p.Dynamic(controlplane.Admin).Resource(cnrs)
	for _, sub := range []string{"status", ""} {
		body, below := `{"status":{"conditions":[{"type":"AgentReady","status":"True"}]}}`, []string{"status"}
		if sub == "" {
			body, below = `{"spec":{"taints":[{"key":"k","effect":"NoScheduleForReclaimedTasks"}]}}`, nil
		}
		if _, err := objects.Patch(t.Context(), "n1", types.MergePatchType, []byte(body), metav1.PatchOptions{FieldManager: "katalyst-controller"}, below...); err != nil {
			t.Fatal(err)
		}
	}
	before := r.reports(t, p, "up to date")
	p.Wait("it is looked at again", func(context.Context) error {
		if r.Row().Skipped < before.Skipped+3 {
			return errors.New("not yet")
		}
		return nil
	})
	if now := r.Row(); now.Written != before.Written || now.Failed != before.Failed {
		t.Errorf("at rest: %+v after %+v", now, before)
	}
	r.set(3000)
	o = takes(t, p, "n1", "1")
	if all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions"); len(all) != 1 || o.Object["spec"] == nil {
		t.Errorf("the fields of other programs are gone: %v", o.Object)
	}

	// Katalyst's agent writes the zones of n2, then those of n1.
	theirs := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "node.katalyst.kubewharf.io/v1alpha1", "kind": "CustomNodeResource", "metadata": map[string]any{"name": "n2", "labels": map[string]any{"a": "b"}}}}
	if _, err := objects.Create(t.Context(), theirs, metav1.CreateOptions{FieldManager: "katalyst-agent"}); err != nil {
		t.Fatal(err)
	}
	body := []byte(`{"status":{"resources":{},"topologyPolicy":"None","topologyZone":[{"type":"Socket","name":"0","resources":{}}]}}`)
	for _, name := range []string{"n2", "n1"} {
		if _, err := objects.Patch(t.Context(), name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: "katalyst-agent"}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	katalyst(t, admin, "n2").reports(t, p, "left to katalyst-agent")
	r.set(2000)
	r.reports(t, p, "left to katalyst-agent")
	if err := objects.Delete(t.Context(), "n1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	takes(t, p, "n1", "2")
}

// TestReportsDuringServerErrors: while the API server answers with any error status, a report has that error and
// retries with growing pauses; afterwards it is up to date.
func TestReportsDuringServerErrors(t *testing.T) {
	t.Parallel()
	p := controlplane.Start(t)
	makeNode(t, p, "n1")
	install(t, p, cnrs, "CustomNodeResource", cnrVersion("v1alpha1"))
	proxy := controlplane.NewErrorProxy(t, p, "")
	r := katalyst(t, proxy.Kubeconfig, "n1")
	takes(t, p, "n1", "")
	for i, code := range []int{
		http.StatusConflict, http.StatusGone, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	} {
		before, asked := r.Row(), proxy.Requests.Load()
		proxy.Begin(code)
		r.set(int64(3000 - 100*i))
		p.Wait(fmt.Sprintf("%d is counted", code), func(context.Context) error {
			if now := r.Row(); now.Failed < before.Failed+3 || now.Error == "" {
				return fmt.Errorf("%+v", now)
			}
			return nil
		})
		fails := int64(r.Row().Failed - before.Failed)
		if n := proxy.Requests.Load() - asked; n > 12*fails+12 { // client-go itself repeats a request whose answer has Retry-After
			t.Errorf("%d: %d requests for %d failures", code, n, fails)
		}
		proxy.End()
		takes(t, p, "n1", amount(1000+100*i))
		r.reports(t, p, "up to date")
	}
}

// amount formats milli-CPUs like Kubernetes.
func amount(milli int) string {
	if milli%1000 == 0 {
		return fmt.Sprint(milli / 1000)
	}
	return fmt.Sprintf("%dm", milli)
}
