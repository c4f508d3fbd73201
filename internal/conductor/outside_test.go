package conductor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
)

// fakeHookServers are hook servers that call a function.
type fakeHookServers struct {
	answer func(ev *lifecycle.Event) (lifecycle.HookServerAnswer, error)
	asked  []*lifecycle.Event
	told   []*lifecycle.Event
}

func (o *fakeHookServers) Asks(lifecycle.Kind) bool { return true }

func (o *fakeHookServers) Ask(_ context.Context, ev *lifecycle.Event) (lifecycle.HookServerAnswer, error) {
	o.asked = append(o.asked, ev)
	if o.answer == nil {
		return lifecycle.HookServerAnswer{}, nil
	}
	return o.answer(ev)
}

func (o *fakeHookServers) Notify(ev *lifecycle.Event) { o.told = append(o.told, ev) }

func want(f lifecycle.Field, key, text string, n int64) lifecycle.Value {
	return lifecycle.Value{Field: f, Key: key, Text: text, Int: n, Why: lifecycle.Reason{Hook: lifecycle.HookServerName, Source: "10-a.json"}}
}

// hookServerOf gives a model a hook server with arbitrary answers, or none.
func (mo *model) hookServerOf(rt *rapid.T) {
	if !rapid.Bool().Draw(rt, "hook server") {
		return
	}
	n := rapid.IntRange(0, 50).Draw(rt, "lies")
	mo.liar = arbitraryHookServer(n)
	mo.boot()
}

// arbitraryHookServer is a hook server with arbitrary answers.
func arbitraryHookServer(n int) *fakeHookServers {
	return &fakeHookServers{answer: func(ev *lifecycle.Event) (lifecycle.HookServerAnswer, error) {
		n++
		if ev.Kind != lifecycle.CreateContainer && ev.Kind != lifecycle.UpdateContainer {
			return lifecycle.HookServerAnswer{}, nil
		}
		if n%11 == 0 {
			return lifecycle.HookServerAnswer{}, errors.New("no")
		}
		cpus := []string{"0-1", "2", "3-5", "0-7", "9", "1,6", "7", "3"}[n%8]
		o := lifecycle.HookServerAnswer{Values: []lifecycle.Value{want(lifecycle.CPUSetCPUs, "", cpus, 0)}}
		if n%3 == 0 {
			o.Values = append(o.Values, want(lifecycle.CPUShares, "", "", int64(3000+n)), want(lifecycle.CPUSetMems, "", "5", 0))
		}
		if n%5 == 0 {
			o.Values = o.Values[1:]
		}
		return o, nil
	}}
}

// fresh is a model with a hook server, and a container of a pod that asks for nothing.
func fresh(t *testing.T, answer func(ev *lifecycle.Event) (lifecycle.HookServerAnswer, error)) (*model, *fakeHookServers) {
	t.Helper()
	mo := newModel(t, cgroup.V2, faults{})
	o := &fakeHookServers{answer: answer}
	mo.liar = o
	mo.boot()
	return mo, o
}

func whatIsSaid(t *testing.T, mo *model, c *modelCtr) (values map[string]string, problems []string) {
	t.Helper()
	values = map[string]string{}
	found, _ := nodeview.Explain(mo.con, "default", c.pod.Name, c.Name)
	for _, e := range found {
		if e.ID != c.ID {
			continue
		}
		for _, v := range e.Values {
			values[v.Field] = v.Value + " " + v.Why.Hook + " " + v.Why.Source
		}
		for _, p := range e.Problems {
			problems = append(problems, p.Sentence())
		}
	}
	return values, problems
}

// atCreation answers creations alone.
func atCreation(values ...lifecycle.Value) func(*lifecycle.Event) (lifecycle.HookServerAnswer, error) {
	return func(ev *lifecycle.Event) (lifecycle.HookServerAnswer, error) {
		if ev.Kind != lifecycle.CreateContainer {
			return lifecycle.HookServerAnswer{}, nil
		}
		return lifecycle.HookServerAnswer{Values: values}, nil
	}
}

// TestHookServerAnswersFirst: a hook server's answer has priority over built-in hooks, survives a
// restart and a new configuration, and is in the kernel.
func TestHookServerAnswersFirst(t *testing.T) {
	t.Parallel()
	mo, _ := fresh(t, atCreation(
		want(lifecycle.CPUShares, "", "", 777), want(lifecycle.CPUSetCPUs, "", "3-4", 0), want(lifecycle.Env, "WHO", "server", 0), want(lifecycle.CPUQuota, "", "", 30000),
	))
	const batch = `{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":"500"},"limits":{"kubernetes.io/batch-cpu":"1000"}}}}`
	c := mo.create(mo.runPod("BE", "", batch), "a")
	mo.start(c)
	check := func(when string) {
		t.Helper()
		values, _ := whatIsSaid(t, mo, c)
		for field, want := range map[string]string{
			"cpu.shares": "777 hookserver 10-a.json", "cpuset.cpus": "3-4 hookserver 10-a.json", "cpu.quota": "30000 hookserver 10-a.json", "env WHO": "server hookserver 10-a.json",
			"memory.limit": "-1 batch node.koordinator.sh/extended-resource-spec",
		} {
			if values[field] != want {
				t.Errorf("%s: %s is %q, not %q", when, field, values[field], want)
			}
		}
		if cpus := mo.effective(c); cpus != "3-4" {
			t.Errorf("%s: it has CPUs %s", when, cpus)
		}
		mo.checkValues(c)
	}
	check("after its start")
	if !slices.Contains(c.Env, "WHO=server") {
		t.Error(c.Env)
	}
	mo.con.Configure(mo.policy, conductor.Tuning{})
	check("after a new configuration")
	mo.restart()
	check("after a restart")
	if len(mo.broken) > 0 {
		t.Error(mo.broken)
	}
}

// TestOwnedCPUsStayOwned: a hook server cannot give away owned CPUs, and a container loses CPUs
// of a hook server that another container comes to own.
func TestOwnedCPUsStayOwned(t *testing.T) {
	t.Parallel()
	cpus := "2-4"
	mo, _ := fresh(t, func(ev *lifecycle.Event) (lifecycle.HookServerAnswer, error) {
		return atCreation(want(lifecycle.CPUSetCPUs, "", cpus, 0))(ev)
	})
	owner := mo.create(mo.runPod("LSR", "2-3", ""), "db")
	mo.start(owner)
	if _, problems := whatIsSaid(t, mo, owner); mo.effective(owner) != "2-3" || len(problems) != 2 ||
		!strings.Contains(problems[0], "nor a pod spec says what the pod requests") || !strings.Contains(problems[1], "owns CPUs 2-3") {
		t.Errorf("the owner has %s: %q", mo.effective(owner), problems)
	}
	part := mo.create(mo.runPod("", "", ""), "a")
	mo.start(part)
	if _, problems := whatIsSaid(t, mo, part); mo.effective(part) != "4" || len(problems) != 1 || !strings.Contains(problems[0], "CPUs 2-3 are owned by default/p1; the container gets only CPUs 4") {
		t.Errorf("it has %s: %q", mo.effective(part), problems)
	}
	cpus = "2"
	none := mo.create(mo.runPod("LS", "", ""), "a")
	mo.start(none)
	if _, problems := whatIsSaid(t, mo, none); mo.effective(none) != "0-1,4-7" || len(problems) != 1 || !strings.Contains(problems[0], "the container gets the CPUs that it would get without this value") {
		t.Errorf("it has %s: %q", mo.effective(none), problems)
	}
	cpus = "4-5"
	loses := mo.create(mo.runPod("", "", ""), "a")
	mo.start(loses)
	mo.start(mo.create(mo.runPod("LSE", "5", ""), "db"))
	if mo.effective(loses) != "4" {
		t.Errorf("it kept %s", mo.effective(loses))
	}
	mo.restart()
	if mo.effective(loses) != "4" || mo.effective(part) != "4" {
		t.Errorf("after a restart: %s, %s", mo.effective(loses), mo.effective(part))
	}
	if len(mo.broken) > 0 {
		t.Error(mo.broken)
	}
}

// TestUpdatesAndAnswers: a hook server is asked about an update with its earlier answers. A
// value that the update requests replaces the earlier answer, unless the server answers again.
func TestUpdatesAndAnswers(t *testing.T) {
	t.Parallel()
	again := false
	mo, o := fresh(t, func(ev *lifecycle.Event) (lifecycle.HookServerAnswer, error) {
		if ev.Kind == lifecycle.CreateContainer || again {
			return lifecycle.HookServerAnswer{Values: []lifecycle.Value{want(lifecycle.CPUShares, "", "", 777), want(lifecycle.CPUQuota, "", "", 30000), want(lifecycle.Env, "A", "b", 0)}}, nil
		}
		return lifecycle.HookServerAnswer{}, nil
	})
	c := mo.create(mo.runPod("", "", ""), "a")
	mo.start(c)
	mo.update(c, lifecycle.Resources{CPU: lifecycle.CPU{Shares: lifecycle.Some[uint64](512)}})
	sent := o.asked[len(o.asked)-1]
	if r := sent.Container.Resources.CPU; sent.Kind != lifecycle.UpdateContainer || r.Shares.V != 512 || r.Quota.V != 30000 || sent.Container.ID != c.ID {
		t.Errorf("asked with %+v", sent.Container)
	}
	if _, has := sent.Container.Annotations[conductor.RecordKey]; has {
		t.Error("the record was sent")
	}
	values, _ := whatIsSaid(t, mo, c)
	if values["cpu.quota"] != "30000 hookserver 10-a.json" || values["cpu.shares"] != "512  " {
		t.Errorf("%v", values)
	}
	again = true
	mo.update(c, lifecycle.Resources{CPU: lifecycle.CPU{Shares: lifecycle.Some[uint64](600)}})
	values, problems := whatIsSaid(t, mo, c)
	if values["cpu.shares"] != "777 hookserver 10-a.json" || len(problems) != 1 || !strings.Contains(problems[0], "only the creation of a container can set this value") {
		t.Errorf("%v %v", values, problems)
	}
	mo.restart()
	if after, _ := whatIsSaid(t, mo, c); after["cpu.shares"] != values["cpu.shares"] {
		t.Errorf("after a restart: %v", after)
	}
}

// TestHookServerRefusal: if a server that must not fail refuses, the creation fails if the
// attachment can hold it. Otherwise it continues and the refusal is reported.
func TestHookServerRefusal(t *testing.T) {
	t.Parallel()
	mo, _ := fresh(t, func(ev *lifecycle.Event) (lifecycle.HookServerAnswer, error) {
		if ev.Kind == lifecycle.CreateContainer {
			return lifecycle.HookServerAnswer{}, errors.New("hook server 10-a.json: no answer")
		}
		return lifecycle.HookServerAnswer{}, nil
	})
	p := mo.runPod("", "", "")
	ctr := &lifecycle.Container{ID: "c", Name: "a", CgroupsPath: p.CgroupParent + "/c"}
	_, err := mo.con.Handle(t.Context(), carrier{}, lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: clone(&p.Pod), Container: clone(ctr)})
	var refused *conductor.Rejection
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "10-a.json: no answer") {
		t.Error(err)
	}
	events, _ := mo.con.Journal().Since(0)
	if last := events[len(events)-1]; !strings.Contains(last.Rejected, "10-a.json") {
		t.Errorf("%+v", last)
	}
	if _, err := mo.con.Handle(t.Context(), observing{}, lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: clone(&p.Pod), Container: clone(ctr)}); err != nil {
		t.Error(err)
	}
	found, _ := nodeview.Explain(mo.con, "default", p.Name, "a")
	if len(found) != 1 || len(found[0].Problems) != 1 || !strings.Contains(found[0].Problems[0].Sentence(), "learns of the event only afterwards") {
		t.Errorf("%+v", found)
	}
}

// TestPodAnswers: a pod keeps labels and annotations that a server answered: for built-in
// hooks, for later calls, and after a restart.
func TestPodAnswers(t *testing.T) {
	t.Parallel()
	mo, o := fresh(t, func(ev *lifecycle.Event) (lifecycle.HookServerAnswer, error) {
		if ev.Kind != lifecycle.RunPodSandbox {
			return lifecycle.HookServerAnswer{}, nil
		}
		return lifecycle.HookServerAnswer{Labels: map[string]string{"koordinator.sh/qosClass": "LSR"}, Annotations: map[string]string{"scheduling.koordinator.sh/resource-status": `{"cpuset":"5"}`}}, nil
	})
	p := mo.runPod("", "", "")
	c := mo.create(p, "a")
	mo.start(c)
	check := func(when string) {
		t.Helper()
		if mo.effective(c) != "5" || len(mo.grants()) != 1 {
			t.Errorf("%s: %s, %v", when, mo.effective(c), mo.grants())
		}
	}
	check("after its start")
	if last := o.asked[len(o.asked)-1]; last.Kind != lifecycle.StartContainer || last.Pod.Labels["koordinator.sh/qosClass"] != "LSR" {
		t.Errorf("asked with %+v", last.Pod)
	}
	if len(p.Labels)+len(p.Annotations) > 0 {
		t.Error("the runtime's own pod was changed")
	}
	mo.restart()
	check("after a restart")
	mo.removePod(p)
	var saved struct{ Pods map[string]any }
	if err := json.Unmarshal(mo.con.Checkpoint().Text(), &saved); err != nil || len(saved.Pods) > 0 {
		t.Errorf("%v: the checkpoint keeps %v", err, saved.Pods)
	}
}

// TestNotifiedAfterwards: servers are notified of events that have ended, with everything that is
// stored.
func TestNotifiedAfterwards(t *testing.T) {
	t.Parallel()
	mo, o := fresh(t, atCreation(want(lifecycle.Env, "A", "b", 0), want(lifecycle.Annotation, "x", "y", 0), want(lifecycle.OOMScoreAdj, "", "", 5)))
	mo.proxied = true
	p := mo.runPod("", "", "")
	c := mo.create(p, "a")
	mo.start(c)
	mo.stopPod(p)
	var told []string
	for _, ev := range o.told {
		told = append(told, ev.Kind.String())
		if ev.Container != nil && (!slices.Contains(ev.Container.Env, "A=b") || ev.Container.Annotations["x"] != "y" || ev.Container.OOMScoreAdj.V != 5 || ev.Container.ID != c.ID) {
			t.Errorf("%s: told of %+v", ev.Kind, ev.Container)
		}
	}
	if d := cmp.Diff([]string{"PostStartContainer", "StopContainer", "StopPodSandbox"}, told); d != "" {
		t.Error(d)
	}
}

// TestLongAnswersSurvive: the checkpoint has what does not fit into a record.
func TestLongAnswersSurvive(t *testing.T) {
	t.Parallel()
	values := []lifecycle.Value{want(lifecycle.CPUShares, "", "", 777)}
	for i := range 200 {
		values = append(values, want(lifecycle.Env, fmt.Sprintf("NAME_%d", i), strings.Repeat("x", 40), 0))
	}
	mo, _ := fresh(t, atCreation(values...))
	c := mo.create(mo.runPod("", "", ""), "a")
	mo.start(c)
	if n := len(c.Annotations[conductor.RecordKey]); n == 0 || n > 4096 {
		t.Errorf("a record of %d bytes", n)
	}
	mo.restart()
	if got, _ := whatIsSaid(t, mo, c); got["cpu.shares"] != "777 hookserver 10-a.json" {
		t.Error(got["cpu.shares"])
	}
}

// TestHookServerPanic: after a panic while a hook server is asked, there is no answer.
func TestHookServerPanic(t *testing.T) {
	t.Parallel()
	mo, _ := fresh(t, func(*lifecycle.Event) (lifecycle.HookServerAnswer, error) { panic("ouch") })
	if c := mo.create(mo.runPod("LSR", "2", ""), "a"); c == nil {
		t.Error("the creation failed")
	} else if mo.start(c); mo.effective(c) != "2" {
		t.Error(mo.effective(c))
	}
}
