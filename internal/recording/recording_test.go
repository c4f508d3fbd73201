package recording

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/none"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/test/clock"
)

func machine(t testing.TB) *topology.Machine {
	t.Helper()
	var l topology.Layout
	for i := range 16 {
		l.CPUs = append(l.CPUs, topology.CPU{ID: i, Core: i / 2, Node: i / 8, L3: i / 4})
	}
	l.Nodes = []topology.Node{{ID: 0, Memory: 1 << 40, Distance: []int{10, 20}, HugePages: map[uint64]uint64{2 << 20: 7}}, {ID: 1, Distance: []int{20, 10}}}
	l.Offline, l.Devices = []int{15}, []topology.Device{{Address: "0000:01:00.0", Node: 1}}
	m, err := topology.Build(l)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func policy(m *topology.Machine) engine.Policy {
	return engine.Policy{
		Dialects: []string{"koordinator", "kubernetes"}, PlacementOn: true, Placement: none.Policy{}, Hooks: []hook.Hook{hook.CPUSetOptions{UnsetQuota: true}, hook.BatchOptions{}},
		Pools: placement.Pools{Online: m.Online(), Shared: m.Online(), Reclaimed: m.Online()},
		Rules: intent.Rules{{Kinds: []intent.Kind{"*"}, Namespaces: []string{"*"}, Decision: intent.Allow}},
	}
}

func pod(n int, cpus string) (lifecycle.Pod, lifecycle.Container) {
	name := fmt.Sprintf("p%d", n)
	p := lifecycle.Pod{ID: "s-" + name, UID: "u-" + name, Namespace: "d", Name: name, CgroupParent: "/kubepods/pod" + name, Resources: &lifecycle.Resources{CPU: lifecycle.CPU{Shares: lifecycle.Some(uint64(0))}}}
	p.Labels = map[string]string{"koordinator.sh/qosClass": "LSR"}
	p.Annotations = map[string]string{"scheduling.koordinator.sh/resource-status": `{"cpuset":"` + cpus + `"}`}
	return p, lifecycle.Container{
		ID: "c-" + name, PodID: p.ID, Name: "main", State: lifecycle.StateCreated, Env: []string{"TOKEN=secret", "A=b<c>"},
		Resources: lifecycle.Resources{CPU: lifecycle.CPU{Shares: lifecycle.Some(uint64(2048)), Quota: lifecycle.Some(int64(200000))}},
	}
}

// record plays events as the conductor does.
func record(t *testing.T, h Header, events []lifecycle.Event) []byte {
	t.Helper()
	m := machine(t)
	s := engine.NewState(m, policy(m))
	var feed Feed
	play := func(ev lifecycle.Event) {
		f := engine.Facts{Records: map[string]engine.Record{"x": {FromCheckpoint: true, StampedPristine: &lifecycle.Resources{}}}}
		e := NewRecordedEvent(s, &ev, f)
		p := engine.Decide(s, &ev, f)
		if p.Reject == "" {
			s.Commit(p)
		}
		e.Decision = DecisionOf(s, p)
		feed.Publish(e)
	}
	half := len(events) / 2
	for _, ev := range events[:half] {
		play(ev)
	}
	sub := feed.Subscribe(s.Copy())
	defer sub.Close()
	for _, ev := range events[half:] {
		play(ev)
	}
	h.Node.Machine = LayoutOf(m)
	ctx, stop := context.WithCancel(t.Context())
	var out bytes.Buffer
	err := sub.Write(ctx, &out, h, func() error { stop(); return nil })
	if err != nil || bytes.Count(out.Bytes(), []byte("\n")) != len(events)-half+1 {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return out.Bytes()
}

// steps are events of pods that start, own CPUs, are resized and end.
func steps() (all []lifecycle.Event) {
	for i, cpus := range []string{"2-3", "4", "3-5", "8-9", "99", "10-11"} {
		p, c := pod(i, cpus)
		all = append(all, lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: &p}, lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: &p, Container: &c}, lifecycle.Event{Kind: lifecycle.StartContainer, Pod: &p, Container: &c})
		if i%2 == 1 {
			before, _ := pod(i-1, "")
			all = append(all, lifecycle.Event{Kind: lifecycle.StopPodSandbox, Pod: &before}, lifecycle.Event{Kind: lifecycle.RemovePodSandbox, Pod: &before})
		}
	}
	return all
}

func same() Options {
	return Options{Policy: func(_ *Node, m *topology.Machine) (engine.Policy, error) { return policy(m), nil }}
}

// TestReplaySame: a recording that begins in the middle has the same decisions, and with another policy the
// differences are listed.
func TestReplaySame(t *testing.T) {
	text := record(t, Header{Version: "v1"}, steps())
	got, err := Replay(bytes.NewReader(text), same())
	if err != nil || !got.Same() || got.Events != 12 || got.Version != "v1" {
		t.Errorf("%+v, %v", got, err)
	}
	other := Options{Recorded: same().Policy, Policy: func(_ *Node, m *topology.Machine) (engine.Policy, error) {
		p := policy(m)
		p.PlacementOn = false
		return p, nil
	}}
	if got, err = Replay(bytes.NewReader(text), other); err != nil || got.Same() {
		t.Fatalf("%+v, %v", got, err)
	}
	got.Sort()
	owners := map[string]bool{}
	for _, d := range got.Differences {
		if d.Recorded == d.Replayed {
			t.Errorf("%+v is no difference", d)
		}
		owners[d.Owner+" "+d.Setting] = true
	}
	for _, want := range []string{"d/p1/main pool", "d/p3/main cpuset.cpus"} {
		if !owners[want] {
			t.Errorf("no difference of %s in %v", want, owners)
		}
	}
}

// TestSaved: a state is the same after it was written and read.
func TestSaved(t *testing.T) {
	m := machine(t)
	s := engine.NewState(m, policy(m))
	for _, ev := range steps() {
		s.Commit(engine.Decide(s, &ev, engine.Facts{}))
	}
	text, err := Encode(s.Save())
	if err != nil {
		t.Fatal(err)
	}
	var read engine.SavedState
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	layout, err := Encode(LayoutOf(m))
	if err != nil {
		t.Fatal(err)
	}
	var l topology.Layout
	if err := json.Unmarshal(layout, &l); err != nil {
		t.Fatal(err)
	}
	built, err := topology.Build(l)
	if err != nil {
		t.Fatal(err)
	}
	r := engine.Restore(built, policy(built), &read)
	again, err := Encode(r.Save())
	if d := cmp.Diff(string(text), string(again)); d != "" || err != nil {
		t.Error(d, err)
	}
	for _, id := range s.Containers() {
		if d := cmp.Diff(s.Values(s.Container(id)), r.Values(r.Container(id))); d != "" {
			t.Errorf("%s: %s", id, d)
		}
	}
}

// TestLost: a reader that is too slow misses events, which are counted, and nobody waits for it.
func TestLost(t *testing.T) {
	var feed Feed
	if feed.Listening() {
		t.Error("nobody listens")
	}
	m := machine(t)
	sub := feed.Subscribe(engine.NewState(m, policy(m)))
	p, _ := pod(1, "2")
	for range maxBufferedEvents + 3 {
		feed.Publish(&RecordedEvent{Event: &lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: &p}})
	}
	<-sub.events
	feed.Publish(&RecordedEvent{Event: &lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: &p}})
	ctx, stop := context.WithCancel(t.Context())
	var out bytes.Buffer
	if err := sub.Write(ctx, &out, Header{}, func() error { stop(); return nil }); err != nil {
		t.Fatal(err)
	}
	sub.Close()
	sub.Close()
	if feed.Listening() {
		t.Error("the closed one listens")
	}
	if n := strings.Count(out.String(), `"lost":1,`) + strings.Count(out.String(), `"lost":3,`); n != 2 { // the one that the test received, and those that did not fit
		t.Errorf("%d lines say that events were lost", n)
	}
}

// TestWithoutEnv: values of variables are left out, names stay.
func TestWithoutEnv(t *testing.T) {
	p, c := pod(1, "2")
	c.Hooks = &lifecycle.OCIHooks{Prestart: []lifecycle.OCIHook{{Path: "/h", Env: []string{"KEY=secret"}}}}
	events := []lifecycle.Event{{Kind: lifecycle.RunPodSandbox, Pod: &p}, {Kind: lifecycle.RunPodSandbox, Pod: &p}, {Kind: lifecycle.CreateContainer, Pod: &p, Container: &c}}
	for _, without := range []bool{true, false} {
		text := string(record(t, Header{WithoutEnv: without}, events))
		if strings.Contains(text, "secret") == without || !strings.Contains(text, "TOKEN=") {
			t.Errorf("without values %v: %s", without, text)
		}
	}
	if c.Env[0] != "TOKEN=secret" {
		t.Error("the container was changed")
	}
}

// TestReplayRefuses: an invalid line is reported with its number.
func TestReplayRefuses(t *testing.T) {
	good := string(record(t, Header{}, steps()))
	head, first, _ := strings.Cut(good, "\n")
	for _, c := range []struct{ text, want string }{
		{"", "the file is empty"}, {"{", "line 1: the file is not a recording"}, {"{}\n", "line 1: the file is not a recording: it has apiVersion"}, {strings.Replace(good, "v1alpha1", "v9", 1), "line 1: the file is not a recording: it has apiVersion"},
		{head + "\n{}\n", `line 2: the line has kind ""`}, {head + "\n[]\n", "line 2:"}, {head + "\n" + strings.Replace(first, `"decision":{`, `"decision":{"rejected":1,`, 1), "line 2: the recorded decision is not valid"},
		{strings.Replace(good, `"cpus":[{`, `"cpus":[{"id":1},{`, 1), "line 1: the node's machine is not valid"},
		{head + "\n" + `{"kind":"Event","event":{"Kind":"Configure"},"decision":{}}` + "\n", "line 2: the Configure event has no node"},
	} {
		if _, err := Replay(strings.NewReader(c.text), same()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: %v, want %s", c.text, err, c.want)
		}
	}
	if got, err := Replay(strings.NewReader(good[:len(good)-9]), same()); err != nil || got.Events != 11 {
		t.Errorf("a cut recording: %+v, %v", got, err)
	}
	failing := Options{Policy: func(*Node, *topology.Machine) (engine.Policy, error) { return engine.Policy{}, errors.New("no policy") }}
	if _, err := Replay(strings.NewReader(good), failing); err == nil || err.Error() != "no policy" {
		t.Error(err)
	}
}

// TestEncode: names, empty fields and sorted keys.
func TestEncode(t *testing.T) {
	type inner struct{ CPUs, CDIDevices, UID string }
	v := struct {
		inner

		Inner   inner
		Tagged  string `json:"x,omitempty"`
		Left    string `json:"-"`
		Set     topology.Set
		Keys    map[lifecycle.Field]int
		Opt     lifecycle.Opt[int]
		Absent  lifecycle.Opt[int]
		Pointer *inner
		None    []int
	}{Inner: inner{"1", "2", "3"}, Tagged: "<", Left: "y", Set: topology.Set{1}, Keys: map[lifecycle.Field]int{lifecycle.Env: 2, lifecycle.CPUShares: 1}, Opt: lifecycle.Some(0), Pointer: &inner{}, None: []int{}}
	text, err := Encode(v)
	want := `{"inner":{"cpus":"1","cdiDevices":"2","uid":"3"},"x":"\u003c","set":[1],"keys":{"cpu.shares":1,"env":2},"opt":0,"pointer":{}}`
	if string(text) != want || err != nil {
		t.Errorf("%s, %v; want %s", text, err, want)
	}
	if _, err := Encode(struct{ F func() }{func() {}}); err == nil {
		t.Error("a function was encoded")
	}
}

// FuzzReplay: any text is replayed or refused.
func FuzzReplay(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"trimtab.io/v1alpha1","kind":"Recording","node":{"machine":{"cpus":[{"id":0}]}},"state":{}}` + "\n" + `{"kind":"Event","event":{"kind":"RunPodSandbox","pod":{"id":"a"}},"decision":{}}` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		defer clock.Watch(t, len(text))()
		_, _ = Replay(bytes.NewReader(text), same())
	})
}

// TestAppendText: texts are encoded as encoding/json does, for any content.
func TestAppendText(t *testing.T) {
	for _, text := range []string{"", "plain", `"`, `\`, "<&>", "a\nb", "\x00", "\x7f", "é", "\u2028", "\xff", strings.Repeat("x", 1000)} {
		want, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := appendText(nil, text); err != nil || string(got) != string(want) {
			t.Errorf("%q: %s, %v; want %s", text, got, err, want)
		}
	}
}
