package nri

import (
	"fmt"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sim/census"
)

// TestIdentitiesEnd creates and removes containers without ids at their creation: some creations fail, once
// or twice, and some removals are not reported. Nothing is kept after their pods were removed.
func TestIdentitiesEnd(t *testing.T) {
	i := newIdentities()
	empty := census.Of(nil, i)
	for n := range 1000 {
		pod := &lifecycle.Pod{ID: fmt.Sprint("pod-", n)}
		step := func(kind lifecycle.Kind, id string) string {
			c := &lifecycle.Container{ID: id, Name: "c"}
			i.setIdentity(kind, pod, c)
			return c.ID
		}
		made := step(lifecycle.CreateContainer, "")
		if n%4 == 0 {
			made = step(lifecycle.CreateContainer, "")
		}
		id := fmt.Sprint("ctr-", n)
		if n%3 > 0 && step(lifecycle.StartContainer, id) != made {
			t.Fatal("the container has another id than it was decided under")
		}
		if n%5 == 0 {
			step(lifecycle.RemoveContainer, id)
		}
		i.forgetPod(pod.ID)
	}
	for name, kept := range census.Of(nil, i) {
		if kept != empty[name] {
			t.Errorf("%s has %d entries, and no pod is left", name, kept)
		}
	}
}
