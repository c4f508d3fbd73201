package configmaps_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/kube/configmaps"
)

func configMap(name, selector string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"config.yaml": "x: " + name},
	}}
	o.SetNamespace("trimtab")
	o.SetName(name)
	if selector != "" {
		o.SetAnnotations(map[string]string{configmaps.SelectorAnnotation: selector})
	}
	return o
}

func TestFor(t *testing.T) {
	labels := map[string]string{"pool": "latency", "zone": "a"}
	for _, c := range []struct {
		name    string
		objects []*unstructured.Unstructured
		want    []string
	}{
		{"nothing", nil, nil},
		{
			"all three, in order",
			[]*unstructured.Unstructured{configMap("trimtab-node-n1", ""), configMap("trimtab-group-latency", "pool=latency"), configMap("trimtab-cluster", "")},
			[]string{"trimtab-cluster", "trimtab-group-latency", "trimtab-node-n1"},
		},
		{
			"those of others",
			[]*unstructured.Unstructured{configMap("trimtab-node-n2", ""), configMap("trimtab-group-batch", "pool in (batch,spare)"), configMap("trimtab-group-b", "pool=latency,zone!=b")},
			[]string{"trimtab-group-b"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			layers, err := configmaps.LayersFor(c.objects, "n1", labels)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range layers {
				got = append(got, strings.TrimPrefix(l.Name, "ConfigMap trimtab/"))
				if !l.Shared {
					t.Errorf("%s is not shared", l.Name)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("layers %q, want %q", got, c.want)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	empty := configMap("trimtab-cluster", "")
	unstructured.RemoveNestedField(empty.Object, "data")
	for _, c := range []struct {
		name    string
		objects []*unstructured.Unstructured
		want    string
	}{
		{
			"two groups",
			[]*unstructured.Unstructured{configMap("trimtab-group-a", "pool=latency"), configMap("trimtab-group-b", "zone=a")},
			"ConfigMap trimtab/trimtab-group-b: its node selector and the node selector of ConfigMap trimtab-group-a both match node n1",
		},
		{"no selector", []*unstructured.Unstructured{configMap("trimtab-group-a", "")}, "set the annotation trimtab.io/node-selector"},
		{"bad selector", []*unstructured.Unstructured{configMap("trimtab-group-a", "a==,,")}, "is not a label selector"},
		{"other name", []*unstructured.Unstructured{configMap("mine", "")}, "its name is not trimtab-cluster"},
		{"no data", []*unstructured.Unstructured{empty}, "no key config.yaml"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := configmaps.LayersFor(c.objects, "n1", map[string]string{"pool": "latency", "zone": "a"})
			var refused *configmaps.Refusal
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want a refusal with %q", err, c.want)
			}
		})
	}
}

// TestNames: a client writes the names that an agent reads.
func TestNames(t *testing.T) {
	text := "apiVersion: " + config.APIVersion + "\nkind: " + config.Kind + "\nstrict: true\n"
	var all []*unstructured.Unstructured
	for name, selector := range map[string]string{configmaps.ClusterMapName: "", configmaps.GroupMapName("g"): "a=b", configmaps.NodeMapName("n1"): ""} {
		o := configMap(name, selector)
		_ = unstructured.SetNestedField(o.Object, text, "data", configmaps.DataKey)
		all = append(all, o)
	}
	layers, err := configmaps.LayersFor(all, "n1", map[string]string{"a": "b"})
	if err != nil || len(layers) != 3 {
		t.Fatalf("layers %v, %v", layers, err)
	}
	c, from, err := config.Merge(layers...)
	if err != nil || !c.Strict || from.Of("strict") != "ConfigMap trimtab/trimtab-node-n1" {
		t.Errorf("strict %v of %q, %v", c.Strict, from.Of("strict"), err)
	}
}
