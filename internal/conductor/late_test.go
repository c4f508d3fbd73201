package conductor_test

import (
	"testing"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestUpdateWrittenLate creates an owner between the answer to an update and the runtime's
// write of it. When the runtime reports the write, the owner's CPUs are exclusive again.
func TestUpdateWrittenLate(t *testing.T) {
	t.Parallel()
	for _, class := range []string{"", "LS", "BE"} {
		mo := newModel(t, cgroup.V1, faults{})
		other := mo.create(mo.runPod(class, "", ""), "a")
		mo.start(other)
		event := func(kind lifecycle.Kind) lifecycle.Event {
			return lifecycle.Event{Kind: kind, Pod: clone(&other.pod.Pod), Container: clone(&other.Container)}
		}
		asked := event(lifecycle.UpdateContainer)
		asked.Requested = &lifecycle.Resources{CPU: lifecycle.CPU{CPUs: "0-7"}}
		ans, _ := mo.handle(asked)
		mo.create(mo.runPod("LSR", "2-3", ""), "db")
		if got := mo.effective(other); got != "0-1,4-7" {
			t.Errorf("class %q: beside the owner of 2-3 it has %s", class, got)
		}
		other.Resources.CPU.CPUs = "0-7"
		mo.apply(other, ans.Values)
		mo.toKernel(other)
		mo.handle(event(lifecycle.PostUpdateContainer))
		if got := mo.effective(other); got != "0-1,4-7" {
			t.Errorf("class %q: after the update was written it has %s beside the owner of 2-3", class, got)
		}
	}
}
