package engine

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement/balloons"
	"github.com/trimtab/trimtab/internal/placement/class"
)

// TestKeepsSchedulingClass: a container keeps the scheduling class that it was created with, after a
// change of the configuration, and after a restart with another configuration.
func TestKeepsSchedulingClass(t *testing.T) {
	t.Parallel()
	policy := func(nice int) Policy {
		_, p := balloonsPolicy(t, "1s x 1n x 4c", balloons.PolicyOptions{
			SchedulingClasses: []class.SchedulingOptions{{Name: "batch", Policy: "batch", Nice: nice}},
			BalloonTypes:      []balloons.TypeOptions{{Name: "b", Namespaces: []string{"ns"}, SchedulingClass: "batch"}},
		})
		p.Hooks = append(p.Hooks, hook.SchedulingClassOptions{})
		return p
	}
	m, _ := balloonsPolicy(t, "1s x 1n x 4c", balloons.PolicyOptions{})
	s := NewState(m, policy(5))
	s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.Synchronize}, Facts{}))
	has := func(when string, s *State, id, want string) {
		t.Helper()
		values := s.Values(s.Container(id))
		if i := slices.IndexFunc(values, func(v lifecycle.Value) bool { return v.Field == lifecycle.ProcessSched }); i < 0 || values[i].Text != want {
			t.Errorf("%s: %s has %v, want %s", when, id, values, want)
		}
	}
	pod, c := balloonPod(1, "ns", "a", 100)
	s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: c}, Facts{}))
	has("created", s, c.ID, "SCHED_BATCH nice=5")

	other := policy(7)
	s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.Configure}, Facts{Policy: &other}))
	has("another configuration", s, c.ID, "SCHED_BATCH nice=5")
	second, later := balloonPod(2, "ns", "a", 100)
	s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: second, Container: later}, Facts{}))
	has("created later", s, later.ID, "SCHED_BATCH nice=7")

	c.State = lifecycle.StateRunning
	listed := &lifecycle.Event{Kind: lifecycle.Synchronize, Pods: []*lifecycle.Pod{pod}, Containers: []*lifecycle.Container{c}}
	again := s.Copy()
	again.Commit(Decide(again, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: c}, Facts{}))
	has("reported again", again, c.ID, "SCHED_BATCH nice=5")

	text, err := json.Marshal(Record{Version: 1, RecordFields: s.Container(c.ID).RecordFields})
	var rec Record
	if err == nil {
		err = json.Unmarshal(text, &rec)
	}
	if err != nil {
		t.Fatal(err)
	}
	restarted := NewState(m, other)
	restarted.Commit(Decide(restarted, listed, Facts{Records: map[string]Record{c.ID: rec}}))
	has("restarted", restarted, c.ID, "SCHED_BATCH nice=5")
}
