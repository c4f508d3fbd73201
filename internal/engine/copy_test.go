package engine

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// dump has everything that can be read from a state.
func dump(s *State) string {
	var b strings.Builder
	fmt.Fprintln(&b, s.Generation, s.OwnedCPUs(), s.Grants())
	for _, id := range s.Pods() {
		p := s.Pod(id)
		fmt.Fprintln(&b, id, *p.Pod, *p.Intent, p.Values, p.ProblemSummary.Problems, s.ContainersOf(id))
	}
	for _, id := range s.Containers() {
		c := s.Container(id)
		fmt.Fprintln(&b, id, *c, s.CPUs(c), s.Values(c))
	}
	return b.String()
}

// wish draws a pod of some containers that may own CPUs, share them, or have malformed annotations.
func wish(t *rapid.T, n int) PlannedPod {
	name := fmt.Sprintf("w%d", n)
	w := PlannedPod{Pod: lifecycle.Pod{
		ID: "sandbox-" + name, UID: "uid-" + name, Namespace: "d", Name: name, CgroupParent: "/kubepods/pod" + name,
		Labels: map[string]string{"koordinator.sh/qosClass": rapid.SampledFrom([]string{"", "LS", "LSR", "BE", "x"}).Draw(t, "class")},
		Annotations: map[string]string{"scheduling.koordinator.sh/resource-status": rapid.SampledFrom([]string{
			"", `{"cpuset":"2-3"}`, `{"cpuset":"3-5"}`, `{"cpuset":"99"}`, `{`,
		}).Draw(t, "status")},
	}, Spec: &lifecycle.PodSpec{UID: "uid-" + name, Namespace: "d", Name: name}}
	for i := range rapid.IntRange(0, 3).Draw(t, "containers") {
		c := fmt.Sprintf("c%d", i)
		w.Containers = append(w.Containers, lifecycle.Container{ID: name + c, PodID: w.Pod.ID, Name: c})
		w.Spec.Containers = append(w.Spec.Containers, lifecycle.ContainerSpec{Name: c, Kind: rapid.SampledFrom([]lifecycle.ContainerKind{lifecycle.App, lifecycle.Init}).Draw(t, "kind")})
	}
	return w
}

// TestWhatIf asks a copy what would happen, which does not change the state, and then makes it happen.
func TestWhatIf(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := node(t)
		s := NewState(m, policy(m))
		n := 0
		draw := func() (all []PlannedPod) {
			for range rapid.IntRange(1, 4).Draw(rt, "wishes") {
				n++
				all = append(all, wish(rt, n))
			}
			return all
		}
		s.WhatIf(draw())
		before := dump(s)
		c := s.Copy()
		if got := dump(c); got != before {
			rt.Fatalf("a copy is another state:\n%s\n%s", before, got)
		}
		wishes := draw()
		refused := c.WhatIf(wishes)
		p := policy(m)
		p.Pools.Shared = set(t, m, "1-7")
		again := c.Copy()
		again.Reconfigure(p)
		if got := dump(s); got != before {
			rt.Fatalf("asking changed the state:\n%s\n%s", before, got)
		}
		if got := s.WhatIf(wishes); fmt.Sprint(got) != fmt.Sprint(refused) {
			rt.Fatalf("refused are %v, foretold were %v", got, refused)
		}
		if want, got := dump(c), dump(s); got != want {
			rt.Fatalf("it came otherwise than foretold:\n%s\n%s", want, got)
		}
	})
}
