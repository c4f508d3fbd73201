package conductor

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/runtimesync"
	"github.com/trimtab/trimtab/internal/sim/clock"
)

// acceptingRuntime is a runtime that accepts every update.
type acceptingRuntime struct {
	got    []string
	during func() // called once, during an update
}

func (r *acceptingRuntime) Update(_ context.Context, what []Settings) ([]string, error) {
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
func (*acceptingRuntime) About() string { return "a runtime" }

// flush sends the queued copies and returns the updates that the runtime got.
func (r *acceptingRuntime) flush(t *testing.T, c *Conductor) []string {
	t.Helper()
	for more := true; more; {
		more = c.sendCopy(t.Context(), always)
	}
	got := r.got
	r.got = nil
	return got
}

// beside is a conductor with a runtime, a container, and a pod that can own CPUs 2-3.
type beside struct {
	*Conductor
	runtime *acceptingRuntime
	pod     *lifecycle.Pod
	ctr     *lifecycle.Container
}

func newBeside(t *testing.T) *beside {
	t.Helper()
	c, _, _ := observed(t, false)
	c.node.state.Policy.Hooks = []hook.Hook{hook.CPUSetOptions{UnsetQuota: true}}
	c.node.state.Policy.Rules = intent.Rules{{Kinds: []intent.Kind{"*"}, Namespaces: []string{"*"}, Decision: intent.Allow}}
	b := &beside{Conductor: c, runtime: &acceptingRuntime{}}
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

// narrowed reports whether an answer narrows the container web because of the owner.
func narrowed(ans Answer) bool {
	return slices.ContainsFunc(ans.Others, func(s Settings) bool { return s.Container == "web" && s.Values[0].Text == "0-1" })
}

// TestCreationInFlight: a runtime ignores updates of a container that it does not know yet.
// When it knows the container, the update is sent again.
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

// TestOwnerGoneInFlight: an owner that starts and ends during a creation may have narrowed the
// runtime's copy. The next update restores the copy.
func TestOwnerGoneInFlight(t *testing.T) {
	b := newBeside(t)
	b.pod.Labels = nil // the pod is in no pool, so it is narrowed only in the kernel, except for this
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

// TestUpdateStoredLate: between the answer to an update and the moment at which the runtime
// stores it, a newer decision updates the runtime's copy. Storing the answer undoes that, so
// the copy is updated again.
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

// TestOvertakenUpdate: during an update the container is decided again, to the value that the
// copy had before. The update is undone, in the copy and in the kernel, because the runtime has
// written both.
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
	if d, _ := b.node.tracks["web"].find(lifecycle.Value{Field: lifecycle.CPUSetCPUs}); d.Value != "0-3" {
		t.Errorf("told people: %+v", d)
	}
}

// TestRequestIsPartOfTheCopy: the kubelet's request is in the runtime's copy, also for fields
// that no hook decided. It differs from a value that is decided later.
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

// always reports that a copy is due, also on a node that is not idle.
func always() bool { return true }

// TestQuietIsNow: the node does not count as idle during an event, nor because of idle time
// before the copy's turn. Otherwise an update could wait for the runtime's lock with an old
// decision, and give back CPUs that an owner got meanwhile.
func TestQuietIsNow(t *testing.T) {
	b := newBeside(t)
	clk := clock.New(func() time.Time { return time.Unix(1e9, 0) })
	b.now, b.eventTimes.zeroTime, b.node.queue = clk.Now, clk.Now(), runtimesync.NewQueue(clk.Now, 0)
	for _, k := range []lifecycle.Kind{lifecycle.CreateContainer, lifecycle.PostCreateContainer, lifecycle.StartContainer} {
		b.event(t, k, nil)
	}
	due := func() bool { return b.node.copyDue(b.eventTimes.idleDuration(b.now())) }
	w := b.newWork(anything{}, &lifecycle.Event{Kind: lifecycle.Inform, Pod: b.pod})
	w.beforeGather = func() {
		clk.Advance(5 * time.Second)
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
		clk.Advance(tt.after)
		b.sendCopy(t.Context(), due)
		if d := cmp.Diff(tt.want, b.runtime.got); d != "" {
			t.Errorf("%v later:\n%s", tt.after, d)
		}
	}
}

// TestRequestSavedFirst: before the runtime's copy of a container gets other values, the container's request is in the
// checkpoint's file. A later agent would take the copy's values for the request.
func TestRequestSavedFirst(t *testing.T) {
	b := newBeside(t)
	for _, k := range []lifecycle.Kind{lifecycle.CreateContainer, lifecycle.PostCreateContainer, lifecycle.StartContainer} {
		b.event(t, k, nil)
	}
	var saved atomic.Value
	first := make(chan struct{}, 1)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- b.Checkpoint().SaveChanges(ctx, func(text []byte) error {
			saved.Store(string(text))
			select {
			case first <- struct{}{}:
			default:
			}
			return nil
		})
	}()
	b.Checkpoint().SetRecord("another", lifecycle.Record{})
	<-first // Keep runs
	b.event(t, lifecycle.UpdateContainer, &lifecycle.Resources{CPU: lifecycle.CPU{CPUs: "0-3"}})
	b.owner(t)
	b.runtime.during = func() {
		if text, _ := saved.Load().(string); !strings.Contains(text, `"web":`) {
			t.Errorf("saved before the update: %s", text)
		}
	}
	if d := cmp.Diff([]string{"web cpuset.cpus 0-1"}, b.runtime.flush(t, b.Conductor)); d != "" {
		t.Errorf("told:\n%s", d)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestUpdatePanics: a panic while the agent updates the runtime counts as a failed update. The copy is sent again, and
// nothing waits for the failed update.
func TestUpdatePanics(t *testing.T) {
	b := newBeside(t)
	for _, k := range []lifecycle.Kind{lifecycle.CreateContainer, lifecycle.PostCreateContainer, lifecycle.StartContainer} {
		b.event(t, k, nil)
	}
	b.owner(t)
	b.runtime.during = func() { panic("a fault") }
	if !b.sendCopy(t.Context(), always) {
		t.Fatal("no copy was due")
	}
	if b.node.queue.Sending {
		t.Error("the failed update is still being sent")
	}
	if d := cmp.Diff([]string{"web cpuset.cpus 0-1"}, b.runtime.flush(t, b.Conductor)); d != "" {
		t.Errorf("sent after the panic:\n%s", d)
	}
}
