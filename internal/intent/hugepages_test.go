package intent

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestHugepages: resources with the names of Kubernetes, amounts in whole pages.
func TestHugepages(t *testing.T) {
	for _, c := range []struct {
		text     string
		want     map[string]map[string]int64
		problems int
	}{
		{`{"a":{"hugepages-2Mi":"64Mi","hugepages-1Gi":"0"}}`, map[string]map[string]int64{"a": {"2MB": 64 << 20, "1GB": 0}}, 0},
		{`{"a":{"hugepages-64Ki":"128Ki"},"b":{"hugepages-2Mi":2097152}}`, map[string]map[string]int64{"a": {"64KB": 128 << 10}, "b": {"2MB": 2 << 20}}, 0},
		{`{"a":{"hugepages-2Mi":"3Mi","hugepages-1Gi":"1Gi"}}`, map[string]map[string]int64{"a": {"1GB": 1 << 30}}, 1},
		{`{"a":{"hugepages-2Mi":"-2Mi"}}`, nil, 1},
		{`{"a":{"hugepages-2MB":"2Mi","hugepages-":"1","memory":"1Gi","hugepages-3Mi":"3Mi","hugepages-02Mi":"2Mi","hugepages-2048Ki":"2Mi"}}`, nil, 6},
		{`{"a":{"hugepages-2Mi":"2Mi","hugepages-2Mi":"4Mi"}}`, nil, 1},
		{`{"a":"2Mi"}`, nil, 1},
		{`[]`, nil, 1},
		{`{}`, nil, 0},
	} {
		got := Read(&lifecycle.Pod{Annotations: map[string]string{TrimtabHugepages: c.text}}, nil, Dialects())
		want := c.want
		if want == nil && got.Hugepages.IsSet() {
			want = map[string]map[string]int64{}
		}
		if diff := cmp.Diff(want, got.Hugepages.V.Limits); diff != "" || len(got.Problems) != c.problems {
			t.Errorf("%s: %s, %v", c.text, diff, got.Problems)
		}
	}
}
