package koordinator_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/kube/koordinator"
)

// TestTopology: annotations of a NodeResourceTopology configure pools, its reports configure nothing, and
// unknown parts are listed.
func TestTopology(t *testing.T) {
	const p = "node.koordinator.sh/"
	for _, c := range []struct {
		name        string
		annotations map[string]string
		pools       config.Pools
		unknown     string
	}{
		{"nothing", nil, config.Pools{}, ""},
		{"reports", map[string]string{p + "cpu-topology": "{", p + "pod-cpu-allocs": "[", "note": "x"}, config.Pools{}, ""},
		{"the kubelet's policy", map[string]string{"kubelet.koordinator.sh/cpu-manager-policy": `{"policy":"static","reservedCPUs":"0-1"}`}, config.Pools{Reserved: "0-1"}, ""},
		{"a policy that reserves nothing", map[string]string{"kubelet.koordinator.sh/cpu-manager-policy": `{"policy":"none"}`}, config.Pools{}, ""},
		{"the system's", map[string]string{p + "system-qos-resource": `{"cpuset":"2"}`, "kubelet.koordinator.sh/cpu-manager-policy": `{"reservedCPUs":"0"}`},
			config.Pools{Reserved: "0,2", System: "2"}, ""},
		{"pools", map[string]string{
			p + "cpu-shared-pools": `[{"socket":0,"node":0,"cpuset":"2-7"},{"socket":1,"node":1,"cpuset":""},{"socket":1,"node":1,"cpuset":"9"}]`, p + "be-cpu-shared-pools": `[]`,
		}, config.Pools{Shared: "2-7,9"}, ""},
		{"bad pools", map[string]string{p + "cpu-shared-pools": `{}`, p + "be-cpu-shared-pools": `[{"cpuset":"a"}]`}, config.Pools{}, "be-cpu-shared-pools"},
		{"unknown", map[string]string{p + "new": "1"}, config.Pools{}, p + "new: the agent does not read this annotation"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := &unstructured.Unstructured{Object: map[string]any{}}
			o.SetName("n1")
			o.SetAnnotations(c.annotations)
			l, ok, unknown := koordinator.TopologyLayer(o)
			got := config.Default()
			if ok {
				var err error
				if got, _, err = config.Merge(l); err != nil {
					t.Fatal(err)
				}
			}
			if got.Pools != c.pools || (c.unknown == "") != (len(unknown) == 0) || !strings.Contains(strings.Join(unknown, "; "), c.unknown) {
				t.Errorf("pools %+v, not understood %q", got.Pools, unknown)
			}
		})
	}
}

// TestForeign: reports by Trimtab are not read as configuration.
func TestForeign(t *testing.T) {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAnnotations(map[string]string{"node.koordinator.sh/cpu-shared-pools": "[]", "node.koordinator.sh/system-qos-resource": "{}"})
	o.SetManagedFields([]metav1.ManagedFieldsEntry{
		{Manager: "trimtab", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:node.koordinator.sh/cpu-shared-pools":{}}},"f:zones":{}}`)},
		{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:node.koordinator.sh/system-qos-resource":{}}}}`)},
		{Manager: "trimtab", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":"odd"}`)},
	})
	koordinator.DropOwnAnnotations(o)
	if a := o.GetAnnotations(); len(a) != 1 || a["node.koordinator.sh/system-qos-resource"] == "" {
		t.Errorf("left are %v", a)
	}
}
