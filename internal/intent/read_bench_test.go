package intent_test

import (
	"testing"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// BenchmarkRead measures what reading a pod costs, in all dialects. A runtime waits for it when a pod starts.
func BenchmarkRead(b *testing.B) {
	s := &intent.ServingSettings{Policy: "balloons", Hooks: []string{"cpuset", "batch"}}
	for name, annotations := range map[string]map[string]string{
		"plain":       nil,
		"koordinator": {intent.KoordExtended: `{"containers":{"c":{"requests":{"kubernetes.io/batch-cpu":"1000"},"limits":{"kubernetes.io/batch-cpu":"1000"}}}}`},
	} {
		pod := &lifecycle.Pod{ID: "p", UID: "u", Name: "p", Namespace: "shop", CgroupParent: "/kubepods/burstable/podu", Annotations: annotations}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Read(pod, nil, intent.Dialects())
			}
		})
	}
}
