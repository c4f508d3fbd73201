package intent

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestUnservedByPolicy: requests that only the policy pools serves are reported under every other policy.
func TestUnservedByPolicy(t *testing.T) {
	t.Parallel()
	pod := &lifecycle.Pod{
		Namespace: "a", Name: "p", CgroupParent: "/kubepods/burstable/pod1",
		Annotations: map[string]string{
			"katalyst.kubewharf.io/qos_level": "shared_cores", "katalyst.kubewharf.io/cpu_enhancement": `{"cpuset_pool":"web"}`,
			"katalyst.kubewharf.io/memory_enhancement": `{"numa_binding":"true"}`, TrimtabIsolated: "true",
		},
	}
	for _, policy := range []string{"", "none", "balloons", "topology-aware", "pools"} {
		s := ServingSettings{Hooks: []string{"cpuset"}, Policy: policy}
		reported := 0
		for _, problem := range s.Read(pod, nil, Dialects()).Problems {
			if strings.Contains(problem.Reason, "set placement.policy: pools") {
				reported++
			}
		}
		if want := map[bool]int{true: 0, false: 3}[policy == "pools"]; reported != want {
			t.Errorf("placement.policy %q: %d requests are reported, want %d", policy, reported, want)
		}
	}
}
