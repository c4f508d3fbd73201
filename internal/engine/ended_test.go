package engine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestLateEvents sends every kind of event of a container and its pod after the pod was removed: none of
// them restores it or its CPUs. A pod that the sweep ended is restored if the runtime still reports it.
func TestLateEvents(t *testing.T) {
	for kind := lifecycle.UpdatePodSandbox; kind < lifecycle.Configure; kind++ {
		for _, swept := range []bool{false, true} {
			m := node(t)
			s := NewState(m, policy(m))
			create(t, s, "db", "LSR", `{"cpuset":"2-3"}`, "")
			if s.OwnedCPUs().Len() != 2 {
				t.Fatal("it owns nothing")
			}
			pod := s.Pod("sandbox-db").Pod
			end := lifecycle.Event{Kind: lifecycle.RemovePodSandbox, Pod: pod}
			p := Decide(s, &end, Facts{CgroupGone: swept})
			s.Commit(p)
			if len(p.EndedContainers) != 1 || len(s.Pods())+len(s.Containers()) != 0 {
				t.Errorf("%d containers are said to be gone; known: %q, %q", len(p.EndedContainers), s.Pods(), s.Containers())
			}
			do(t, s, lifecycle.Event{Kind: kind, Pod: pod, Container: &lifecycle.Container{ID: "db", PodID: pod.ID, Name: "c", State: lifecycle.StateRunning}})
			goesOn := swept && (slices.Contains(introducingEvents, kind) || kind == lifecycle.UpdatePodSandbox)
			if back := len(s.Pods()) == 1; back != goesOn || !goesOn && !s.OwnedCPUs().Empty() {
				t.Errorf("%s after the end (swept: %v): pods %q, containers %q, %d CPUs owned", kind, swept, s.Pods(), s.Containers(), s.OwnedCPUs().Len())
			}
		}
	}
}

// TestEndedIsBounded removes more pods than are remembered, some of them twice.
func TestEndedIsBounded(t *testing.T) {
	var e endedPods
	for i := range 5 * maxEndedPods {
		e.add(fmt.Sprint(i))
		e.add(fmt.Sprint(i))
	}
	if len(e.ids) != maxEndedPods || len(e.order) != maxEndedPods || !e.ids[fmt.Sprint(4*maxEndedPods)] || e.ids[fmt.Sprint(4*maxEndedPods-1)] {
		t.Errorf("%d and %d are remembered", len(e.ids), len(e.order))
	}
}
