package hook

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestSchedulingClass: a class sets what it has and no hook set before. A pod itself gets nothing.
func TestSchedulingClass(t *testing.T) {
	t.Parallel()
	both := lifecycle.SchedulingClass{Name: "batch", From: "placement.balloons.b", Scheduler: "SCHED_BATCH nice=5", IOPriority: "IOPRIO_CLASS_BE 6"}
	niceOnly := both
	niceOnly.IOPriority = ""
	asked := lifecycle.Value{Field: lifecycle.ProcessSched, Text: "SCHED_IDLE", Why: lifecycle.Reason{Hook: "scheduler"}}
	for _, c := range []struct {
		name  string
		in    Input
		other []lifecycle.Value
		want  map[string]string
	}{
		{"both", Input{Container: "a", Scheduling: both}, nil, map[string]string{"scheduler": "SCHED_BATCH nice=5", "io.priority": "IOPRIO_CLASS_BE 6"}},
		{"the policy alone", Input{Container: "a", Scheduling: niceOnly}, nil, map[string]string{"scheduler": "SCHED_BATCH nice=5"}},
		{"an annotation sets one", Input{Container: "a", Scheduling: both}, []lifecycle.Value{asked}, map[string]string{"scheduler": "SCHED_IDLE", "io.priority": "IOPRIO_CLASS_BE 6"}},
		{"the pod itself", Input{Scheduling: both}, nil, map[string]string{}},
		{"no class", Input{Container: "a"}, nil, map[string]string{}},
	} {
		out := Output{Values: c.other}
		SchedulingClassOptions{}.Propose(&c.in, &out)
		got := map[string]string{}
		for _, v := range out.Values {
			got[v.Setting()] += v.Text
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}
