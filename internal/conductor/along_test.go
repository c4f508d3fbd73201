package conductor

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/runtimesync"
)

// lockedAnswers is an attachment whose runtime writes an answer's values for other containers under its
// lock.
type lockedAnswers struct{ anything }

func (lockedAnswers) Capabilities() Capabilities {
	can := anything{}.Capabilities()
	can.Piggybacks = true
	return can
}

// busy makes copies overdue: none could be sent for longer than MaxWait.
func (b *beside) busy() { b.node.queue.Since = b.now().Add(-runtimesync.MaxWait) }

// due reports whether a copy is sent although the node is not idle.
func (b *beside) due() bool {
	return b.node.queue.WaitTime(0, b.node.anyConnected().carrier.Capabilities().Piggybacks) == 0
}

// next handles an event of another pod, and returns what its answer changes in other
// containers.
func (b *beside) next(t *testing.T, from Carrier, kind lifecycle.Kind) []string {
	t.Helper()
	defer b.Flush()
	pod := &lifecycle.Pod{ID: "x", Name: "x", UID: "ux", Namespace: "shop", CgroupParent: "/kubepods/podux"}
	ans, err := b.Handle(t.Context(), from, lifecycle.Event{Kind: kind, Pod: pod,
		Container: &lifecycle.Container{ID: "x", PodID: "x", Name: "x", CgroupsPath: "/kubepods/podux/x"}})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, s := range ans.Others {
		for _, v := range s.Values {
			out = append(out, s.Container+" "+v.Field.String()+" "+v.String())
		}
	}
	return out
}

// narrowedByOwner returns a running container that was narrowed because of an owner, so that its
// copy in the runtime is outdated.
func narrowedByOwner(t *testing.T) *beside {
	t.Helper()
	b := newBeside(t)
	for _, k := range []lifecycle.Kind{lifecycle.CreateContainer, lifecycle.PostCreateContainer, lifecycle.StartContainer} {
		b.event(t, k, nil)
	}
	b.owner(t)
	return b
}

// TestPiggybackWhenNeverIdle: on a node that is never idle, outdated copies go with answers, each once.
// They are sent again when the node is idle, since no runtime reports which it accepted.
func TestPiggybackWhenNeverIdle(t *testing.T) {
	want := []string{"web cpuset.cpus 0-1"}
	b := narrowedByOwner(t)
	if got := b.next(t, lockedAnswers{}, lifecycle.CreateContainer); got != nil {
		t.Errorf("on a node that was quiet a moment ago: %v", got)
	}
	b.busy()
	for _, tt := range []struct {
		from Carrier
		kind lifecycle.Kind
	}{{anything{}, lifecycle.CreateContainer}, {lockedAnswers{}, lifecycle.StartContainer}, {lockedAnswers{}, lifecycle.PostCreateContainer}} {
		if got := b.next(t, tt.from, tt.kind); got != nil {
			t.Errorf("%T, %s: %v, which is not written under the lock", tt.from, tt.kind, got)
		}
	}
	if d := cmp.Diff(want, b.next(t, lockedAnswers{}, lifecycle.StopContainer)); d != "" {
		t.Errorf("given along:\n%s", d)
	}
	b.busy()
	if got := b.next(t, lockedAnswers{}, lifecycle.CreateContainer); got != nil {
		t.Errorf("given along twice: %v", got)
	}
	if d := cmp.Diff(want, b.runtime.flush(t, b.Conductor)); d != "" {
		t.Errorf("when it is quiet:\n%s", d)
	}
	b.busy()
	if got := b.next(t, lockedAnswers{}, lifecycle.CreateContainer); got != nil {
		t.Errorf("given along though the copy agrees: %v", got)
	}
}

// TestNoPiggyback: an answer carries no copy of a container that the runtime writes next
// itself, and no field that another plugin may set in the same answer.
func TestNoPiggyback(t *testing.T) {
	t.Run("asked", func(t *testing.T) {
		b := narrowedByOwner(t)
		b.event(t, lifecycle.UpdateContainer, &lifecycle.Resources{CPU: lifecycle.CPU{Shares: lifecycle.Some[uint64](512)}})
		b.busy()
		if got := b.next(t, lockedAnswers{}, lifecycle.CreateContainer); got != nil {
			t.Errorf("%v, while an update is under way", got)
		}
	})
	t.Run("ceded", func(t *testing.T) {
		b := narrowedByOwner(t)
		b.node.cededFields = map[lifecycle.Field]bool{lifecycle.CPUSetCPUs: true}
		b.busy()
		if got := b.next(t, lockedAnswers{}, lifecycle.CreateContainer); got != nil {
			t.Errorf("%v, which is another plugin's", got)
		}
	})
	t.Run("itself", func(t *testing.T) {
		b := narrowedByOwner(t)
		b.busy()
		defer b.Flush()
		ans, err := b.Handle(t.Context(), lockedAnswers{}, lifecycle.Event{Kind: lifecycle.UpdateContainer, Pod: b.pod, Container: b.ctr})
		if err != nil || len(ans.Others) > 0 {
			t.Errorf("its own answer tells of it twice: %v, %v", ans.Others, err)
		}
	})
}

// TestOverdue: if no answer can carry a copy, an update is sent although a decision may
// overtake it, but only when it is overdue.
func TestOverdue(t *testing.T) {
	b := newBeside(t)
	if b.due() {
		t.Error("a runtime that takes nothing along does not wait at all")
	}
	b.busy()
	if !b.due() {
		t.Error("a runtime that takes nothing along waits for ever")
	}
	b.Detached(anything{}, nil)
	b.Attached(lockedAnswers{}, b.runtime)
	if b.due() {
		t.Error("sent beside decisions to a runtime that takes it along")
	}
}
