package rules_test

import (
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/none"
	"github.com/trimtab/trimtab/internal/rules"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// drawn is a random pod with a container.
func drawn(t *rapid.T, i int) (*lifecycle.Pod, *lifecycle.Container) {
	texts := rapid.MapOfN(rapid.SampledFrom([]string{"app", "tier", "koordinator.sh/qosClass"}), rapid.SampledFrom([]string{"web", "LS", "BE"}), 0, 3)
	pod := &lifecycle.Pod{
		ID: fmt.Sprintf("p%d", i), UID: fmt.Sprintf("u%d", i), Name: fmt.Sprintf("pod-%d", i), Namespace: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "namespace"),
		Labels: texts.Draw(t, "labels"), Annotations: texts.Draw(t, "annotations"), CgroupParent: "/kubepods/burstable/pod" + fmt.Sprint(i),
	}
	c := &lifecycle.Container{ID: fmt.Sprintf("c%d", i), PodID: pod.ID, Name: "main", Image: &lifecycle.Image{Name: "nginx"}}
	c.Resources.CPU.Shares = lifecycle.Some(rapid.Uint64Range(2, 4096).Draw(t, "shares"))
	c.Resources.CPU.Quota = lifecycle.Some(rapid.Int64Range(-1, 400000).Draw(t, "quota"))
	c.Resources.Memory.Limit = lifecycle.Some(rapid.Int64Range(0, 1<<30).Draw(t, "memory"))
	return pod, c
}

// play decides a history and returns all decisions.
func play(history []lifecycle.Event, hooks func(*engine.Policy)) any {
	m, err := describe.Parse("1s x 2n x 4c")
	if err != nil {
		return err
	}
	p := engine.Policy{
		Dialects: intent.Dialects(), PlacementOn: true, Placement: none.Policy{}, Serving: &intent.ServingSettings{},
		Pools: placement.Pools{Online: m.Online(), Shared: m.Online(), Reclaimed: m.OnlineOf("6-7")}, FatalHooks: map[string]bool{},
	}
	hooks(&p)
	s := engine.NewState(m, p)
	var all []any
	for i := range history {
		plan := engine.Decide(s, &history[i], engine.Facts{})
		all = append(all, plan.Reject, plan.Changed, plan.ChangedPods, plan.EndedContainers)
		s.Commit(plan)
		for _, id := range s.Containers() {
			c := s.Container(id)
			all = append(all, id, s.Values(c), s.Problems(c), c.Assignment, c.RecordFields)
		}
		for _, id := range s.Pods() {
			pod := s.Pod(id)
			all = append(all, id, pod.Values, pod.Problems(), *pod.Intent)
		}
	}
	return all
}

// TestIdleRulesChangeNothing plays random histories with rules that match nothing, and without rules: the
// decisions are the same.
func TestIdleRulesChangeNothing(t *testing.T) {
	set, problems := rules.Compile([]rules.RuleOptions{
		{Name: "a", Match: `pod.namespace == "none"`, Set: []rules.SettingOptions{{Field: "cpu.shares", Value: "8"}, {Field: "env", Key: "A", Value: "1"}}},
		{Name: "b", Match: `pod.labels["none"] != "x"`, Class: "reclaimed", NUMA: rules.NUMAOptions{Bind: true}},
		{Name: "c", Match: `container.image == "none"`, Refuse: "no"},
		{Name: "d", Match: `pod.resources.memory < 0`, Set: []rules.SettingOptions{{Field: "unified", Key: "memory.high", Value: "1", Scope: "pod"}}},
	})
	if problems != nil {
		t.Fatal(problems)
	}
	always, problems := rules.Compile([]rules.RuleOptions{{Name: "e", Match: "true", Set: []rules.SettingOptions{{Field: "env", Key: "A", Value: "1"}}}})
	if problems != nil {
		t.Fatal(problems)
	}
	rapid.Check(t, func(t *rapid.T) {
		var history []lifecycle.Event
		for i := range rapid.IntRange(1, 5).Draw(t, "pods") {
			pod, c := drawn(t, i)
			history = append(history, lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: pod}, lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: c})
			if rapid.Bool().Draw(t, "resize") {
				history = append(history, lifecycle.Event{
					Kind: lifecycle.UpdateContainer, Pod: pod, Container: c,
					Requested: &lifecycle.Resources{CPU: lifecycle.CPU{Shares: lifecycle.Some[uint64](100)}},
				})
			}
			if rapid.Bool().Draw(t, "end") {
				history = append(history, lifecycle.Event{Kind: lifecycle.StopContainer, Pod: pod, Container: c}, lifecycle.Event{Kind: lifecycle.StopPodSandbox, Pod: pod})
			}
		}
		without := play(history, func(*engine.Policy) {})
		with := play(history, func(p *engine.Policy) { p.Hooks = append(p.Hooks, set.Hooks(rules.Facts{})...) })
		if !reflect.DeepEqual(without, with) {
			t.Fatalf("without rules:\n%v\nwith rules that match nothing:\n%v", without, with)
		}
		if reflect.DeepEqual(without, play(history, func(p *engine.Policy) { p.Hooks = append(p.Hooks, always.Hooks(rules.Facts{})...) })) {
			t.Fatal("a rule that matches everything changes nothing: this test cannot fail")
		}
	})
}
