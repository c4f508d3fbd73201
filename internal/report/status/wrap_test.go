package status

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
)

// TestExplainLongList: a long list of CPUs is whole, and no line of it or of a long reason is wider than the terminal.
func TestExplainLongList(t *testing.T) {
	var ids []string
	for i := range 128 {
		ids = append(ids, fmt.Sprint(2*i))
	}
	list := strings.Join(ids, ",")
	c := api.Container{
		Pod: "db/redis-0", Name: "redis", State: "running", Class: "shared", QoS: "Guaranteed", CPUGroup: "exclusive", CPUs: list,
		Facts:  []api.Fact{{Name: "assigned CPUs", Value: list, From: lifecycle.FromRuntime}},
		Values: []api.Value{{Field: lifecycle.CPUSetCPUs.String(), Value: list, Channel: "kernel", Applied: true, Why: lifecycle.Reason{Hook: "cpuset", Text: strings.Repeat("a reason ", 30)}}},
	}
	for _, width := range []int{80, 100, 160} {
		var b bytes.Buffer
		if err := RenderExplain(&b, []api.Container{c}, Options{Width: width}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("a line of %d columns on %d: %s", n, width, line)
			}
		}
		if joined := strings.NewReplacer("\n", "", " ", "").Replace(b.String()); strings.Count(joined, list) != 3 {
			t.Errorf("the list is whole %d times, not for CPUs, fact and value:\n%s", strings.Count(joined, list), &b)
		}
	}
}
