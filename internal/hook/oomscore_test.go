package hook

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/trimtab/trimtab/internal/intent"
)

func TestOOMScore(t *testing.T) {
	pod := &intent.Pod{
		OOMScore:  intent.Sourced[int64]{V: -500, Key: intent.KoordOOMScore},
		OOMScores: intent.Sourced[map[string]int64]{V: map[string]int64{"main": 0}, Key: intent.KoordOOMScoreSpec},
	}
	for _, c := range []struct {
		name, container string
		pod             *intent.Pod
		want            map[string]string
	}{
		{"its own, and zero is a score", "main", pod, map[string]string{"oom.score": "0"}},
		{"the pod's", "side", pod, map[string]string{"oom.score": "-500"}},
		{"the pod itself has none", "", pod, map[string]string{}},
		{"nothing said", "main", &intent.Pod{}, map[string]string{}},
	} {
		if diff := cmp.Diff(c.want, values(&Input{Intent: c.pod, Container: c.container}, OOMScoreOptions{})); diff != "" {
			t.Error(c.name, diff)
		}
	}
}
