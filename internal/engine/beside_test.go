package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// besideOwner is a pod that was refused its CPUs, and got them when one of its containers was created
// again.
type besideOwner struct {
	t    *testing.T
	m    *topology.Machine
	s    *State
	a    asking
	pod  *lifecycle.Pod
	side lifecycle.Resources
}

func newBesideOwner(t *testing.T) *besideOwner {
	t.Helper()
	m, p := t16(t, "2s x 2n x 2c x 2t, 8GiB/node")
	b := &besideOwner{t: t, m: m, s: NewState(m, p), a: asking{name: "main", level: "LSR", milli: 3100}, side: asking{milli: 100}.resources()}
	hog := asking{name: "hog", level: "LSE", milli: 12000}
	hog.run(t, b.s)
	b.pod = b.a.pod()
	do(t, b.s, lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: b.pod})
	b.create("main", "main", 3000)
	b.create("side", "side", 100)
	do(t, b.s, lifecycle.Event{Kind: lifecycle.RemovePodSandbox, Pod: hog.pod()})
	b.tell(lifecycle.RemoveContainer, "side", nil)
	b.create("a", "side", 100)
	b.check("1,8-9", "")
	return b
}

func (b *besideOwner) tell(kind lifecycle.Kind, id string, asks *lifecycle.Resources) {
	b.t.Helper()
	do(b.t, b.s, lifecycle.Event{Kind: kind, Pod: b.pod, Container: &lifecycle.Container{ID: id, PodID: b.pod.ID}, Requested: asks})
}

func (b *besideOwner) create(id, name string, milli int64) {
	b.t.Helper()
	told := &lifecycle.Container{ID: id, PodID: b.pod.ID, Name: name, Resources: asking{milli: milli}.resources()}
	do(b.t, b.s, lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: b.pod, Container: told})
}

// resize resizes the container that runs in a pool.
func (b *besideOwner) resize(milli int64) {
	b.t.Helper()
	r := asking{milli: milli}.resources()
	b.tell(lifecycle.UpdateContainer, "main", &r)
}

// check checks the owner's CPUs and the reported problems.
func (b *besideOwner) check(cpus, problem string) {
	b.t.Helper()
	checkOwned(b.t, b.m, b.s, cpus)
	var said []string
	for _, q := range b.s.Container("a").ProblemSummary.Problems {
		said = append(said, q.Reason)
	}
	if all := strings.Join(said, "; "); (problem == "") != (all == "") || !strings.Contains(all, problem) {
		b.t.Errorf("said %q, wanted %q", all, problem)
	}
}

// TestResizeBesideOwner: a resize of the container that still runs in a pool changes what the pod pays for.
func TestResizeBesideOwner(t *testing.T) {
	for _, c := range []struct {
		name    string
		milli   int64 // the last number that it requests
		cpus    string
		problem string
	}{
		{name: "to less", milli: 1000, cpus: "8"},
		{name: "to more", milli: 4000, cpus: "1,8-10"},
		{name: "to more than there is", milli: 20000, cpus: "1,8-9", problem: "the container requests 20 CPUs now and owns 3"},
		{name: "to less than a CPU", milli: 500, problem: "the container owned 3 CPUs and was resized"},
	} {
		for _, told := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, and the sum is told: %v", c.name, told), func(t *testing.T) {
				b := newBesideOwner(t)
				if b.resize(c.milli); told {
					sum := asking{milli: c.milli + 100}.resources()
					do(t, b.s, lifecycle.Event{Kind: lifecycle.UpdatePodSandbox, Pod: b.pod, Requested: &sum})
				}
				b.check(c.cpus, c.problem)
				if got := b.s.Container("main").Assignment; !got.Owned.Empty() {
					t.Errorf("who shared owns %s by a resize", b.m.Format(got.Owned))
				}
			})
		}
	}
}

// TestResizeBesideEnded: the owner ends meanwhile, and is created again.
func TestResizeBesideEnded(t *testing.T) {
	for _, c := range []struct {
		name    string
		milli   int64
		cpus    string
		problem string
	}{
		{name: "less", milli: 1000, cpus: "8"},
		{name: "more", milli: 4000, cpus: "1,8-10"},
		{name: "more than there is", milli: 20000, cpus: "1,8-9", problem: "the container requests 20 CPUs now and owns 3"},
		{name: "less than a CPU", milli: 500, problem: "is less than one whole CPU"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBesideOwner(t)
			b.tell(lifecycle.RemoveContainer, "a", nil)
			b.resize(c.milli)
			b.create("a", "side", 100)
			b.check(c.cpus, c.problem)
		})
	}
}

// TestCreatedAgainBesideOwner: a container that ran in a pool is created again beside the owner, and gets
// the CPUs that its pod owns.
func TestCreatedAgainBesideOwner(t *testing.T) {
	t.Run("with less", func(t *testing.T) {
		b := newBesideOwner(t)
		b.tell(lifecycle.StartContainer, "main", nil)
		b.tell(lifecycle.StopContainer, "main", nil)
		b.create("anew", "main", 1000)
		b.check("8", "")
		if got := b.m.Format(b.s.Container("anew").Assignment.Owned); got != "8" {
			t.Errorf("it owns %s, wanted 8", got)
		}
	})
	t.Run("after a resize that was refused", func(t *testing.T) {
		b := newBesideOwner(t)
		b.resize(20000)
		b.tell(lifecycle.RemoveContainer, "main", nil)
		b.create("main", "main", 20000)
		if said := b.s.Container("main").ProblemSummary.Problems; len(said) == 0 || !strings.Contains(said[0].Reason, "the container requests 20 CPUs now and owns 3") {
			t.Errorf("of who is created anew is said %v", said)
		}
		b.resize(4000)
		b.check("1,8-10", "")
	})
}

// TestRefusedThenResized: a pod was refused, and resized to fewer CPUs. The agent restarts and gets the
// pod's first request. Its container is created again, and gets the CPUs that it pays for.
func TestRefusedThenResized(t *testing.T) {
	m, p := t16(t, "2s x 2n x 2c x 2t, 8GiB/node")
	first, less := asking{milli: 4000}.resources(), asking{milli: 2000}.resources()
	for _, c := range []struct {
		name    string
		stamped *lifecycle.Resources
		owns    int
	}{{"its record has what it asked for first", &first, 2}, {"no record of its creation", nil, 4}} {
		s := NewState(m, p)
		pod := asking{name: "a", level: "LSR", milli: 4000}.pod()
		main := &lifecycle.Container{ID: "a", PodID: pod.ID, Name: "c", Resources: less, State: lifecycle.StateRunning}
		records := map[string]Record{"a": {FromCheckpoint: true, StampedPristine: c.stamped, RecordFields: lifecycle.RecordFields{Pristine: less}}}
		s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.Synchronize, Pods: []*lifecycle.Pod{pod}, Containers: []*lifecycle.Container{main}}, Facts{Records: records}))
		do(t, s, lifecycle.Event{Kind: lifecycle.RemoveContainer, Pod: pod, Container: main})
		do(t, s, lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: &lifecycle.Container{ID: "b", PodID: pod.ID, Name: "c", Resources: less}})
		if got := s.Container("b").Assignment.Owned; got.Len() != c.owns {
			t.Errorf("%s: it owns %s, want %d CPUs", c.name, m.Format(got), c.owns)
		}
	}
}
