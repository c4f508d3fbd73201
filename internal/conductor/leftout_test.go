package conductor

import (
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestLeftOut: a runtime that was killed leaves out a container whose shim does not answer in
// time, and reports it after its next restart, with our decision in its copy. The agent does
// not mistake that for the request.
func TestLeftOut(t *testing.T) {
	b := newBeside(t)
	b.ctr.State = lifecycle.StateRunning
	sync := func(pods []*lifecycle.Pod, ctrs ...*lifecycle.Container) {
		t.Helper()
		if _, err := handle(t, b.Conductor, lifecycle.Event{Kind: lifecycle.Synchronize, Pods: pods, Containers: ctrs}); err != nil {
			t.Fatal(err)
		}
	}
	alone := []*lifecycle.Pod{b.pod}
	sync(alone, b.ctr) // created before the agent, so it has no record
	b.owner(t)
	b.runtime.flush(t, b.Conductor)
	b.ctr.Resources.CPU.CPUs = "0-1" // the runtime's copy from now on
	sync(alone)
	sync(alone)
	sync(alone, b.ctr)
	if got := b.node.state.Container("web").Pristine.CPU.CPUs; got != "" {
		t.Errorf("our own decision, CPUs %s, is taken for what was asked for", got)
	}
}
