package rights

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trimtab/trimtab/test/vm/controlplane"
)

// TestProfiles: the admission examples set the class of pods by namespace and label, and of no other pods.
func TestProfiles(t *testing.T) {
	p := controlplane.Start(t)
	files, err := filepath.Glob("../../../../examples/admission/*.yaml")
	if err != nil || len(files) != 2 {
		t.Fatalf("examples %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		create(t, p, string(text))
	}
	for name, label := range map[string]string{"plain": "", "reports": "colocation: batch", "db": "dedicated: allowed"} {
		create(t, p, fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {%s}}}", name, label))
		create(t, p, fmt.Sprintf("{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: %s}}", name))
	}
	cases := map[string]string{
		"reports/":                                       "BE",
		"reports/tier: database":                         "BE",
		"reports/koordinator.sh/qosClass: LS":            "LS",
		"db/tier: database":                              "LSR",
		"db/tier: database, koordinator.sh/qosClass: BE": "LSR",
		"db/tier: web":                                   "",
		"plain/tier: database":                           "",
		"plain/":                                         "",
	}
	// The API server applies policies some moments after their creation.
	for _, what := range slices.Backward(slices.Sorted(maps.Keys(cases))) {
		namespace, labels, _ := strings.Cut(what, "/")
		p.Wait("a pod with "+what, func(ctx context.Context) error {
			pod := parse(t, fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {generateName: a-, namespace: %s, labels: {%s}}, spec: {containers: [{name: c, image: i}]}}", namespace, labels))[0]
			made, err := of(p.Dynamic(controlplane.Admin), "Pod", namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				return err
			}
			if class := made.GetLabels()["koordinator.sh/qosClass"]; class != cases[what] {
				return fmt.Errorf("class %q, want %q", class, cases[what])
			}
			return nil
		})
	}
}
