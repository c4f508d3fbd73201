package conductor

import (
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestTrace: each event passes the steps that ARCHITECTURE.md names, in one order, and
// log.level debug prints them.
func TestTrace(t *testing.T) {
	t.Parallel()
	c, _, log := observed(t, false)
	c.log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	pod, ctr := testPod(nil), lifecycle.Container{ID: "c", Name: "main"}
	const whole = "turn gather decide route apply confirm"
	step := regexp.MustCompile(`event=(\w+).* step=(\w+)`)
	for _, tt := range []struct {
		do          func()
		event, want string
	}{
		{func() { _, _ = handle(t, c, lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: pod}) }, "RunPodSandbox", "wait " + whole},
		{func() {
			_, _ = handle(t, c, lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: &ctr})
		}, "CreateContainer", "wait " + whole},
		{func() {
			_, _ = handle(t, c, lifecycle.Event{Kind: lifecycle.UpdateContainer, Pod: pod, Container: &ctr})
		}, "UpdateContainer", "wait " + whole},
		{func() { c.Configure(c.node.state.Policy, Tuning{}) }, "Configure", whole},
		{func() { c.repair([]string{"c"}) }, "Repair", "turn apply confirm"},
		{func() {
			nothing := c.node.state.Policy
			nothing.Hooks, nothing.PlacementOn = nil, false
			c.Release(t.Context(), nothing)
		}, "Configure", whole},
	} {
		log.Reset()
		tt.do()
		var got []string
		for _, m := range step.FindAllStringSubmatch(log.String(), -1) {
			if m[1] != tt.event {
				t.Errorf("%s: a step of %s", tt.event, m[1])
			}
			got = append(got, m[2])
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: steps are %q, want %q", tt.event, got, tt.want)
		}
	}
}
