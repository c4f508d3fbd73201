package engine

import (
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestRefusedResizeAfterRestart: an owner of one CPU was refused six. The agent restarts and gets the pod's
// first request, seven. The owner requests six again, and does not get seven.
func TestRefusedResizeAfterRestart(t *testing.T) {
	m, p := t16(t, "2s x 2n x 2c x 2t, 8GiB/node")
	s := NewState(m, p)
	a := asking{name: "a", level: "LSR", milli: 7000}
	now := asking{milli: 6000}.resources()
	main := &lifecycle.Container{ID: "a", PodID: "sandbox-a", Name: "c", Resources: now, State: lifecycle.StateRunning}
	records := map[string]Record{"a": {FromCheckpoint: true, CPUs: "1", RecordFields: lifecycle.RecordFields{Pristine: now, RefusedCPUs: 6}}}
	s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.Synchronize, Pods: []*lifecycle.Pod{a.pod()}, Containers: []*lifecycle.Container{main}}, Facts{Records: records}))
	resizeTo(t, s, a, 6000, false)
	if got := s.Container("a").Assignment.Owned; got.Len() != 6 {
		t.Errorf("it owns %s, want 6 CPUs", m.Format(got))
	}
}
