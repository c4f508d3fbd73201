package conductor

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/runtimesync"
	"github.com/trimtab/trimtab/internal/sim/clock"
)

// taking is a runtime that takes every update.
type taking struct {
	got    []string
	during func() // called once, while an update is under way
}

func (r *taking) Update(_ context.Context, what []Settings) ([]string, error) {
	if during := r.during; during != nil {
		r.during = nil
		during()
	}
	for _, s := range what {
		for _, v := range s.Values {
			r.got = append(r.got, s.Container+" "+v.Field.String()+" "+v.String())
		}
	}
	return nil, nil
}
func (*taking) About() string { return "a runtime" }

// flush sends what is queued and returns what the runtime was told.
func (r *taking) flush(t *testing.T, c *Conductor) []string {
	t.Helper()
	for more := true; more; {
		more = c.sendCopy(t.Context(), always)
	}
	got := r.got
	r.got = nil
	return got
}

// beside is a conductor with a runtime, and one that can own CPUs 2-3 beside
// whoever else there is.
type beside struct {
	*Conductor
	runtime *taking
	pod     *lifecycle.Pod
	ctr     *lifecycle.Container
}

func newBeside(t *testing.T) *beside {
	t.Helper()
	c, _, _ := observed(t, false)
	c.node.state.Policy.Hooks = []hook.Hook{hook.CPUSet{UnsetQuota: true}}
	c.node.state.Policy.Rules = intent.Rules{{Kinds: []intent.Kind{"*"}, Namespaces: []string{"*"}, Decision: intent.Allow}}
	b := &beside{Conductor: c, runtime: &taking{}}
	c.Attached(anything{}, b.runtime)
	b.pod = &lifecycle.Pod{ID: "w", Name: "web", UID: "uw", Namespace: "shop", CgroupParent: "/kubepods/poduw",
		Labels: map[string]string{intent.KoordQoSClass: "LS"}}
	b.ctr = &lifecycle.Container{ID: "web", PodID: "w", Name: "web", CgroupsPath: "/kubepods/poduw/web"}
	b.event(t, lifecycle.RunPodSandbox, nil)
	return b
}

func (b *beside) event(t *testing.T, kind lifecycle.Kind, asked *lifecycle.Resources) Answer {
	t.Helper()
	ev := lifecycle.Event{Kind: kind, Pod: b.pod, Requested: asked}
	if kind != lifecycle.RunPodSandbox {
		ev.Container = b.ctr
	}
	ans, err := handle(t, b.Conductor, ev)
	if err != nil {
		t.Fatal(err)
	}
	return ans
}

// owner creates a container that owns CPUs 2-3.
func (b *beside) owner(t *testing.T) Answer {
	t.Helper()
	p := testPod(map[string]string{intent.KoordResourceStatus: `{"cpuset":"2-3"}`})
	p.Labels = map[string]string{intent.KoordQoSClass: "LSR"}
	ans, err := handle(t, b.Conductor, lifecycle.Event{
		Kind: lifecycle.CreateContainer, Pod: p, Container: &lifecycle.Container{ID: "db", PodID: "p", Name: "db", CgroupsPath: "/kubepods/podu/db"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return ans
}

// narrowed reports whether an answer narrows web beside the owner.
func narrowed(ans Answer) bool {
	return slices.ContainsFunc(ans.Others, func(s Settings) bool { return s.Container == "web" && s.Values[0].Text == "0-1" })
}

// TestCreationInFlight: a runtime passes over updates of a container it does
// not know yet. Once it does, it is told again.
func TestCreationInFlight(t *testing.T) {
	for _, landed := range []lifecycle.Kind{lifecycle.PostCreateContainer, lifecycle.StartContainer, lifecycle.UpdateContainer} {
		b := newBeside(t)
		b.event(t, lifecycle.CreateContainer, nil)
		if !narrowed(b.owner(t)) {
			t.Fatal("what waits for its start is not narrowed with the answer")
		}
		if got := b.runtime.flush(t, b.Conductor); got != nil {
			t.Errorf("%s: told before the runtime knows the container: %v", landed, got)
		}
		b.event(t, landed, nil)
		if d := cmp.Diff([]string{"web cpuset.cpus 0-1"}, b.runtime.flush(t, b.Conductor)); d != "" {
			t.Errorf("%s: told afterwards:\n%s", landed, d)
		}
	}
	b := newBeside(t)
	b.event(t, lifecycle.CreateContainer, nil)
	b.event(t, lifecycle.PostCreateContainer, nil)
	if !narrowed(b.owner(t)) {
		t.Fatal("what waits for its start is not narrowed with the answer")
	}
	b.event(t, lifecycle.StartContainer, nil)
	if got := b.runtime.flush(t, b.Conductor); got != nil {
		t.Errorf("told twice: %v", got)
	}
}

// TestOwnerGoneInFlight: an owner that comes and goes while a creation is in
// flight may have left its mark on the runtime's copy. Whatever is sent next
// takes it away again.
func TestOwnerGoneInFlight(t *testing.T) {
	b := newBeside(t)
	b.pod.Labels = nil // of no pool: it is narrowed in the kernel alone, but for this
	b.event(t, lifecycle.RunPodSandbox, nil)
	b.event(t, lifecycle.CreateContainer, nil)
	if !narrowed(b.owner(t)) {
		t.Fatal("what waits for its start is not narrowed with the answer")
	}
	gone := testPod(nil)
	if _, err := handle(t, b.Conductor, lifecycle.Event{Kind: lifecycle.StopPodSandbox, Pod: gone}); err != nil {
		t.Fatal(err)
	}
	ans := b.event(t, lifecycle.UpdateContainer, &lifecycle.Resources{CPU: lifecycle.CPU{Shares: lifecycle.Some[uint64](512)}})
	if len(ans.Values) != 1 || ans.Values[0].Text != "0-3" {
		t.Errorf("an update is answered %v", ans.Values)
	}
	b.event(t, lifecycle.PostUpdateContainer, nil)
	b.event(t, lifecycle.StartContainer, nil)
	if got := b.runtime.flush(t, b.Conductor); got != nil {
		t.Errorf("told what the answer carried: %v", got)
	}
}

// TestUpdateStoredLate: between the answer to an update and the moment at which
// the runtime stores it, the runtime's copy is brought in line with a newer
// decision. Storing undoes that, and it is brought in line again.
func TestUpdateStoredLate(t *testing.T) {
	b := newBeside(t)
	for _, k := range []lifecycle.Kind{lifecycle.CreateContainer, lifecycle.PostCreateContainer, lifecycle.StartContainer} {
		b.event(t, k, nil)
	}
	ans := b.event(t, lifecycle.UpdateContainer, &lifecycle.Resources{CPU: lifecycle.CPU{CPUs: "0-3"}})
	if len(ans.Values) != 1 || ans.Values[0].Text != "0-3" {
		t.Fatalf("answered %v", ans.Values)
	}
	b.owner(t)
	want := []string{"web cpuset.cpus 0-1"}
	if d := cmp.Diff(want, b.runtime.flush(t, b.Conductor)); d != "" {
		t.Fatalf("told between answer and storing:\n%s", d)
	}
	b.event(t, lifecycle.PostUpdateContainer, nil)
	if d := cmp.Diff(want, b.runtime.flush(t, b.Conductor)); d != "" {
		t.Errorf("told after storing:\n%s", d)
	}
	b.event(t, lifecycle.PostUpdateContainer, nil)
	if got := b.runtime.flush(t, b.Conductor); got != nil {
		t.Errorf("told once more: %v", got)
	}
}

// TestOvertakenUpdate: while an update is under way, the container is decided again,
// and what is decided is what the copy had before. The update is undone, in the copy
// and in the kernel, where the runtime has written it as well.
func TestOvertakenUpdate(t *testing.T) {
	b := newBeside(t)
	b.ctr.Resources.CPU.CPUs = "0-3"
	for _, k := range []lifecycle.Kind{lifecycle.CreateContainer, lifecycle.PostCreateContainer, lifecycle.StartContainer} {
		b.event(t, k, nil)
	}
	b.owner(t)
	b.runtime.during = func() {
		if _, err := handle(t, b.Conductor, lifecycle.Event{Kind: lifecycle.StopPodSandbox, Pod: testPod(nil)}); err != nil {
			t.Error(err)
		}
	}
	if d := cmp.Diff([]string{"web cpuset.cpus 0-1", "web cpuset.cpus 0-3"}, b.runtime.flush(t, b.Conductor)); d != "" {
		t.Errorf("told:\n%s", d)
	}
	for _, o := range b.keeper.Reconcile("web") {
		if o.Value.Text != "0-3" {
			t.Errorf("wanted in the end: %+v", o)
		}
	}
	if d, _ := b.node.tracks["web"].of(lifecycle.Value{Field: lifecycle.CPUSetCPUs}); d.Value != "0-3" {
		t.Errorf("told people: %+v", d)
	}
}

// TestRequestIsPartOfTheCopy: what the kubelet asked for and nobody decided is
// in the runtime's copy, and differs from a value decided later.
func TestRequestIsPartOfTheCopy(t *testing.T) {
	b := newBeside(t)
	b.ctr.Resources.CPU.CPUs = "0-1"
	b.pod.Labels = nil
	_, _ = handle(t, b.Conductor, lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: b.pod})
	b.ctr.State = lifecycle.StateRunning
	_, _ = handle(t, b.Conductor, lifecycle.Event{Kind: lifecycle.Synchronize, Pods: []*lifecycle.Pod{b.pod}, Containers: []*lifecycle.Container{b.ctr}})
	b.event(t, lifecycle.UpdateContainer, &lifecycle.Resources{CPU: lifecycle.CPU{CPUs: "0-3"}})
	b.event(t, lifecycle.PostUpdateContainer, nil)
	if got := b.runtime.flush(t, b.Conductor); got != nil {
		t.Errorf("nothing is decided, and told is %v", got)
	}
	b.owner(t)
	if d := cmp.Diff([]string{"web cpuset.cpus 0-1"}, b.runtime.flush(t, b.Conductor)); d != "" {
		t.Errorf("told:\n%s", d)
	}
}

// always has copies sent on a node that is not quiet, too.
func always() bool { return true }

// TestQuietIsNow: no time counts as quiet in which an event was under way, and none
// that was over before the sending had its turn: the update would wait for the runtime's
// lock with what was decided before, and give back what an owner gets meanwhile.
func TestQuietIsNow(t *testing.T) {
	b := newBeside(t)
	clk := clock.New(func() time.Time { return time.Unix(1e9, 0) })
	b.now, b.uptimes.began, b.node.queue = clk.Now, clk.Now(), runtimesync.NewQueue(clk.Now, 0)
	for _, k := range []lifecycle.Kind{lifecycle.CreateContainer, lifecycle.PostCreateContainer, lifecycle.StartContainer} {
		b.event(t, k, nil)
	}
	due := func() bool { return b.node.copyDue(b.uptimes.idle(b.uptime())) }
	w := b.newWork(anything{}, &lifecycle.Event{Kind: lifecycle.Inform, Pod: b.pod})
	w.first = func() {
		clk.Pass(5 * time.Second)
		if due() {
			t.Error("a copy is sent while an event is under way")
		}
	}
	b.owner(t)
	if _, err := b.run(w); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		after time.Duration
		want  []string
	}{{0, nil}, {900 * time.Millisecond, nil}, {100 * time.Millisecond, []string{"web cpuset.cpus 0-1"}}} {
		clk.Pass(tt.after)
		b.sendCopy(t.Context(), due)
		if d := cmp.Diff(tt.want, b.runtime.got); d != "" {
			t.Errorf("%v later:\n%s", tt.after, d)
		}
	}
}
