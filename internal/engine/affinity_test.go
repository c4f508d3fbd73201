package engine

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/expression"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/balloons"
	"github.com/trimtab/trimtab/internal/placement/topologyaware"
)

const everywhere = `"scope":{"operator":"AlwaysTrue"}`

// TestScopedAffinities: containers of other pods attract and repel a container by expressions; those that
// end no longer do; the reason says that they decided.
func TestScopedAffinities(t *testing.T) {
	t.Parallel()
	small := treeAsk{100, 200}
	b := newTreeNode(t, topologyaware.Options{})
	b.pod = func(name string, p *lifecycle.Pod) {
		p.Labels = map[string]string{"app": strings.TrimRight(name, "0123456789")}
	}
	web, db := b.run("web1", nil, small)[0], b.run("db1", nil, whole(1))[0]
	b.want("apart", b.nodes(web) != b.nodes(db), web, db)
	nearWeb := map[string]string{intent.NRIAffinity: `{"c0":[{` + everywhere + `,"match":{"key":"pod/labels/app","operator":"Equals","values":["web"]}}]}`}
	nearDB := map[string]string{intent.NRIAffinity: `{"c0":[{` + everywhere + `,"match":{"key":"pod/labels/app","operator":"Equals","values":["db"]},"weight":7}]}`}
	one, two, owner := b.run("a1", nearWeb, small)[0], b.run("a2", nearDB, small)[0], b.run("a3", nearDB, whole(1))[0]
	b.want("near", b.nodes(one) == b.nodes(web) && b.nodes(two) == b.nodes(db) && b.nodes(owner) == b.nodes(db), one, two, owner)
	for _, c := range []*Container{one, two, owner} {
		b.want("the reason", strings.Contains(c.Assignment.Why, "nearer to containers with affinity"), c)
	}
	far := map[string]string{intent.NRIAntiAffinity: `c0: [{scope: {key: namespace, operator: Equals, values: [default]}, match: {key: pod/name, operator: MatchesAny, values: ["web*", "db*"]}}]`}
	apart := b.run("a4", far, small)[0]
	b.want("far", b.nodes(apart).And(b.nodes(web).Union(b.nodes(db))).Empty(), apart)
	none := map[string]string{intent.NRIAffinity: `c0: [{scope: {key: namespace, operator: Equals, values: [other]}, match: {key: pod/labels/app, operator: Exists}}]`}
	plain, same := b.run("a5", none, small)[0], b.run("a6", nil, small)[0]
	b.want("out of scope", !strings.Contains(plain.Assignment.Why, "containers with affinity") && !strings.Contains(same.Assignment.Why, "containers with affinity"), plain)
	for _, pod := range []string{"db1", "a2", "a3"} {
		b.remove(pod)
	}
	gone := b.run("a7", nearDB, small)[0]
	b.want("those that ended", !strings.Contains(gone.Assignment.Why, "containers with affinity"), gone)
}

// TestAffinitiesOfOneEvent: containers that are decided in one event attract each other, too.
func TestAffinitiesOfOneEvent(t *testing.T) {
	t.Parallel()
	m, p := topologyAwarePolicy(t, n4c16, topologyaware.Options{})
	p.Dialects = append(p.Dialects, "nri-plugins")
	b, ev := treeNodeOf(t, m, p), &lifecycle.Event{Kind: lifecycle.Synchronize}
	for i := range 4 {
		pod, c := treePod(i, "default", 100, 200)
		pod.Annotations, c.Name = map[string]string{intent.NRIAffinity: `{"c0":[{` + everywhere + `,"match":{"key":"name","operator":"Exists"}}]}`}, "c0"
		ev.Pods, ev.Containers = append(ev.Pods, pod), append(ev.Containers, c)
	}
	b.s.Commit(Decide(b.s, ev, Facts{}))
	for _, id := range b.s.Containers() {
		b.want("together", b.nodes(b.s.Container(id)) == b.nodes(b.s.Container(ev.Containers[0].ID)), b.s.Container(id))
	}
}

// TestAffinitiesFollowPolicy: after a change of the policy and back, containers count where they are.
func TestAffinitiesFollowPolicy(t *testing.T) {
	t.Parallel()
	b := newTreeNode(t, topologyaware.Options{})
	b.run("web", nil, treeAsk{100, 200})
	tree := b.s.Policy
	_, other := balloonsPolicy(t, n4c16, balloons.PolicyOptions{})
	for _, step := range []struct {
		policy Policy
		want   int
	}{{other, 0}, {tree, 1}} {
		b.s.Reconfigure(step.policy)
		parts := map[string]int{}
		b.s.affinityIndex.Count(parts, &expression.Expression{Key: "name", Operator: "Exists"})
		if len(parts) != step.want {
			t.Errorf("with %T the index has %v", step.policy.Placement, parts)
		}
	}
}

// checkScopes compares the counts that the index gives to what follows from the containers of a state.
func checkScopes(t *rapid.T, s *State) {
	t.Helper()
	for _, e := range []expression.Expression{
		{Key: "name", Operator: "In", Values: []string{"c0", "c1"}}, {Key: "namespace", Operator: "NotIn", Values: []string{"a", "default"}},
		{Key: "pod/name", Operator: "Matches", Values: []string{"*1*"}}, {Key: "pod/qosclass", Operator: "NotEqual", Values: []string{"Guaranteed"}},
		{Key: ":pod/namespace:name", Operator: "MatchesNone", Values: []string{"a:*", "*:c1"}}, {Key: "pod/labels/app", Operator: "NotExists"},
	} {
		f := &intent.Affinity{Scope: &expression.Expression{Key: "pod/uid", Operator: "Exists"}, Match: &e}
		plain, indexed := scopeCount{affinity: f, byPart: map[string]int{}}, scopeCount{affinity: f, byPart: map[string]int{}}
		for _, c := range s.containers {
			plain.countInState(s, c, 1)
		}
		if indexed.countAll(s); s.affinityIndex == nil || !maps.Equal(plain.byPart, indexed.byPart) {
			t.Fatalf("%v holds in %v, the index has %v", e, plain.byPart, indexed.byPart)
		}
	}
}

// BenchmarkAffinities decides the creation of a container with a scoped affinity beside others: one that
// others have, one that is new, and those that the index cannot look up.
func BenchmarkAffinities(b *testing.B) {
	wishes := func(match string) map[string]string {
		return map[string]string{intent.NRIAffinity: `{"c0":[{` + everywhere + `,"match":` + match + `}]}`}
	}
	affinity := func(app string) map[string]string {
		return wishes(`{"key":"pod/labels/app","operator":"In","values":["` + app + `"]}`)
	}
	for _, n := range []int{0, 100, 1000} {
		for name, wish := range map[string]map[string]string{
			"none": nil, "known": affinity("web"), "new": affinity("db"),
			"pattern": wishes(`{"key":"pod/name","operator":"MatchesAny","values":["web-*","*-db-*"]}`),
			"negated": wishes(`{"key":"pod/name","operator":"NotIn","values":["a","b"]}`),
			"joint":   wishes(`{"key":":namespace:pod/labels/app","operator":"Equals","values":["many:web"]}`),
		} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				m, p := topologyAwarePolicy(b, speedMachine, topologyaware.Options{})
				p.Dialects = append(p.Dialects, "nri-plugins")
				s := NewState(m, p)
				for i := range n {
					pod, c := treePod(i, "many", 100, 200)
					pod.Labels, pod.Annotations, c.Name = map[string]string{"app": "web"}, maps.Clone(affinity("web")), "c0"
					s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: c}, Facts{}))
				}
				pod, c := treePod(5000, "a", 1500, 1700)
				c.Name, pod.Annotations = "c0", wish
				measureDecisions(b, s, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: c}, placement.TreePool)
			})
		}
	}
}
