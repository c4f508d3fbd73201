package fleet_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/fleet"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/doctor"
)

// TestWords: the plugin uses the agent's strings.
func TestWords(t *testing.T) {
	n := api.Node{
		Version: "v1", Started: time.Unix(5, 0).UTC(), ConfigGen: 3, ConfigError: "bad", Standby: "other", Released: true, Unsaved: []string{"x"},
		Attachments: []api.Attachment{{Name: "nri", State: "connected", Runtime: "r", WhyActive: "why"}},
		Containers:  []api.Container{{Pod: "a/b", State: "running"}}, Unapplied: 2, Problems: 3,
	}
	var s fleet.Status
	again(t, n, &s)
	if s.Version != "v1" || !s.Started.Equal(n.Started) || s.ConfigGen != 3 || s.ConfigError != "bad" || s.Standby != "other" || !s.Released ||
		len(s.Unsaved) != 1 || s.AttachmentStates() != "nri connected" || !s.Attached() || s.Containers[0].Pod != "a/b" || s.Violations() != 5 {
		t.Errorf("status %+v", s)
	}
	var r fleet.Report
	again(t, doctor.Report{Problems: 1, Unknown: 2, Checks: []doctor.Check{{Name: "n", Result: doctor.Problem, Found: "f", Why: "w", Do: "d"}}}, &r)
	if r.Problems != 1 || r.Unknown != 2 || r.Checks[0] != (fleet.Check{Name: "n", Result: "problem", Found: "f", Why: "w", Do: "d"}) {
		t.Errorf("report %+v", r)
	}
	var o fleet.Plan
	again(t, api.Plan{
		Containers: []api.Container{{Pod: "a/b", Name: "c", CPUs: "1"}}, Rejected: []api.Rejected{{Pod: "a/b", Reason: "r"}},
		Moves: []api.Move{{Pod: "a/b", Container: "c", Before: "1", After: "2"}},
	}, &o)
	if o.Containers[0].CPUs != "1" || o.Rejected[0].Reason != "r" || o.Moves[0] != (fleet.Move{Pod: "a/b", Container: "c", Before: "1", After: "2"}) {
		t.Errorf("outlook %+v", o)
	}
}

// TestOlderAndNewer: fields that are unknown or missing are no error.
func TestOlderAndNewer(t *testing.T) {
	var s fleet.Status
	if err := json.Unmarshal([]byte(`{"version": "v9", "somethingNew": {"a": [1]}}`), &s); err != nil || s.Version != "v9" || s.Fault() != "" {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := s.HasApplied("x", "1"); err == nil {
		t.Error("an agent that says nothing of ConfigMaps takes one")
	}
}

func again(t *testing.T, from, to any) {
	t.Helper()
	b, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(b, to)
	}
	if err != nil {
		t.Fatal(err)
	}
}
