package conductor

import (
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestForeignRecord: a creation that carries a record of another agent is logged, but not each
// time.
func TestForeignRecord(t *testing.T) {
	c, _, log := observed(t, false)
	var now time.Duration
	c.now = func() time.Time { return time.Unix(1000, 0).Add(now) }
	c.reports.Now = c.now
	p := testPod(nil)
	_, _ = handle(t, c, lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: p})
	create := func(id, record string) {
		ctr := &lifecycle.Container{ID: id, PodID: p.ID, Name: id}
		if record != "" {
			ctr.Annotations = map[string]string{RecordKey: record}
		}
		_, _ = handle(t, c, lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: p, Container: ctr})
	}
	create("a", "")
	const line = "has a record that this agent did not write"
	if strings.Contains(log.String(), line) {
		t.Errorf("without a record:\n%s", log)
	}
	create("b", "0123 {}")
	create("c", "0123 {}")
	if n := strings.Count(log.String(), line); n != 1 {
		t.Errorf("named %d times:\n%s", n, log)
	}
	now = 5 * time.Minute
	create("d", "0123 {}")
	if n := strings.Count(log.String(), line); n != 2 {
		t.Errorf("named %d times after a while:\n%s", n, log)
	}
}
