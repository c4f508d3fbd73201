package cluster_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trimtab/trimtab/test/vm/controlplane"
)

// TestReportIntoFullObject: the API server refuses a report into an object that other programs have filled to etcd's
// limit of 1.5 MiB. The agent reports that, retries with growing pauses, and writes the report once there is room.
func TestReportIntoFullObject(t *testing.T) {
	t.Parallel()
	p := controlplane.Start(t)
	makeNode(t, p, "n1")
	install(t, p, cnrs, "CustomNodeResource", cnrVersion("v1alpha1"))
	objects := p.Dynamic(controlplane.Admin).Resource(cnrs)
	size := 1_572_800
	for ; size > 1_500_000; size -= 100 {
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "node.katalyst.kubewharf.io/v1alpha1", "kind": "CustomNodeResource", "metadata": map[string]any{"name": "n1"},
			"spec": map[string]any{"large": strings.Repeat("x", size)},
		}}
		if _, err := objects.Create(t.Context(), o, metav1.CreateOptions{FieldManager: "other"}); err == nil {
			break
		}
	}
	t.Logf("%d bytes are taken", size)
	r := katalyst(t, p.Kubeconfig("agent", controlplane.Admin+"-token"), "n1")
	r.reports(t, p, "too large")
	p.Wait("it is tried again", func(context.Context) error {
		if r.Row().Failed < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	if row := r.Row(); row.Written != 0 {
		t.Errorf("it was written: %+v", row)
	}
	if _, err := objects.Patch(t.Context(), "n1", types.MergePatchType, []byte(`{"spec":{"large":null}}`), metav1.PatchOptions{FieldManager: "other"}); err != nil {
		t.Fatal(err)
	}
	takes(t, p, "n1", "")
	r.set(3000)
	takes(t, p, "n1", "1")
}
