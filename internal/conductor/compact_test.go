package conductor

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

func TestCompact(t *testing.T) {
	t.Parallel()
	made := func() lifecycle.Event {
		return lifecycle.Event{
			Kind: lifecycle.Synchronize,
			Pods: []*lifecycle.Pod{nil, {}, {
				ID: "s", Name: "db", UID: "u", Namespace: "shop", RuntimeHandler: "runc", CgroupParent: "/kubepods/podu", CgroupsPath: "x:y:z",
				Labels: map[string]string{"app": "db", "empty": ""}, Annotations: map[string]string{"a": "1"},
				Resources: &lifecycle.Resources{CPU: lifecycle.CPU{Shares: lifecycle.Some(uint64(2))}}, PID: 7, IPs: []string{"10.0.0.1"},
			}},
			Containers: []*lifecycle.Container{nil, {
				ID: "c", PodID: "s", Name: "main", CgroupsPath: "p:q:r", Env: []string{"A=1", ""}, Labels: map[string]string{"app": "db"},
				Annotations: map[string]string{"a": "", "b": "2"},
				Resources:   lifecycle.Resources{CPU: lifecycle.CPU{CPUs: "0-3"}},
			}},
		}
	}
	got := made()
	compact(&got)
	for _, c := range got.Containers[1:] {
		c.Compact()
	}
	if diff := cmp.Diff(made(), got); diff != "" {
		t.Errorf("compacting changes what was told (-want +got):\n%s", diff)
	}
}
