package conductor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestFailurePolicy makes the decision panic. By default the pod runs without our values; with
// failure policy Fail its creation is refused.
func TestFailurePolicy(t *testing.T) {
	for _, fail := range []bool{false, true} {
		c, _, log := observed(t, false)
		p := testPod(nil)
		_, _ = handle(t, c, lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: p})
		c.failClosed.Store(fail)
		c.node.state = nil // every access to it panics
		answer, err := c.Handle(t.Context(), anything{}, lifecycle.Event{
			Kind: lifecycle.CreateContainer, Pod: p, Container: &lifecycle.Container{ID: "c", PodID: "p", Name: "pg"},
		})
		var no *Rejection
		if refused := errors.As(err, &no); refused != fail || len(answer.Values) > 0 {
			t.Errorf("policy fail %t: %v, %v", fail, answer, err)
		}
		if !strings.Contains(log.String(), "the agent could not handle an event because of a panic") {
			t.Errorf("the fault is not in the log:\n%s", log)
		}
	}
}

// TestTimerPanics: after a panic of timed work the timer calls it again.
func TestTimerPanics(t *testing.T) {
	c, _, log := observed(t, false)
	ctx, cancel := context.WithCancel(t.Context())
	runs := 0
	c.serveTask(ctx, &timedTask{"fail", time.NewTimer(0), time.Nanosecond, func(context.Context) {
		if runs++; runs >= 3 { // the timer may be due once more
			cancel()
			return
		}
		panic("a fault")
	}})
	if n := strings.Count(log.String(), "a timed task of the agent panicked"); n != 2 {
		t.Errorf("%d panics are in the log, want 2:\n%s", n, log)
	}
}
