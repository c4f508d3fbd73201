package expression

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// aSubject draws a subject with few different values.
func aSubject(t *rapid.T) Subject {
	text := func(what string, all ...string) string { return rapid.SampledFrom(all).Draw(t, what) }
	s := Subject{Name: text("name", "", "main", "side"), QoS: text("class", "Burstable", "BestEffort")}
	if rapid.IntRange(0, 9).Draw(t, "no pod") == 0 {
		return s
	}
	s.Pod = &lifecycle.Pod{Name: text("pod", "web-1", "web-2", "db-1"), UID: text("uid", "u1", "u2"), ID: text("id", "s1", "s2"), Namespace: text("namespace", "", "shop", "web-1")}
	s.Pod.Labels = map[string]string{}
	for _, label := range []string{"app", "tier"} {
		if value := text(label, "none", "", "web", "main", string(make([]byte, lifecycle.MaxValueBytes+1))); value != "none" {
			s.Pod.Labels[label] = value
		}
	}
	return s
}

// anExpression draws an expression, also one that Fault would refuse.
func anExpression(t *rapid.T, what string) *Expression {
	keys := append(Keys(), "pod/labels/app", "pod/labels/tier", "pod/labels/none", "pod/labels/", "none", ":namespace:name", ":,-pod/labels/app,pod/name")
	for i := range maxJoint {
		keys = append(keys, fmt.Sprintf(":name:label/%d", i))
	}
	values := []string{"main", "web-1", "shop", "web", "", "*", "web-*", "*1", "[", "Burstable", "shop:main", "web-db-1", "web-?", "?eb*1", "*:main", "[w]eb*", `\web`}
	return &Expression{
		Key: rapid.SampledFrom(keys).Draw(t, "key of "+what), Operator: rapid.SampledFrom(append(Operators(), "Near")).Draw(t, "operator of "+what),
		Values: rapid.SliceOfN(rapid.SampledFrom(values), 0, 3).Draw(t, "values of "+what),
	}
}

// TestIndex: the counts of an index are those of its subjects, compared one after the other.
func TestIndex(t *testing.T) {
	t.Parallel()
	type kept struct {
		Subject

		group string
	}
	rapid.Check(t, func(t *rapid.T) {
		x, all := NewIndex(), map[string]kept{}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				id, s := fmt.Sprint(rapid.IntRange(0, 150).Draw(t, "id")), kept{aSubject(t), rapid.SampledFrom([]string{"node 0", "node 1"}).Draw(t, "group")}
				x.Put(id, s.Subject, s.group)
				all[id] = s
			},
			"again": func(t *rapid.T) { // an equal subject whose pod is another object
				if len(all) == 0 {
					t.Skip("the index is empty, so no subject can be put again")
				}
				id := rapid.SampledFrom(slices.Sorted(maps.Keys(all))).Draw(t, "id")
				s := all[id]
				if s.Pod != nil {
					pod := *s.Pod
					s.Pod = &pod
				}
				x.Put(id, s.Subject, s.group)
			},
			"remove": func(t *rapid.T) {
				id := fmt.Sprint(rapid.IntRange(0, 150).Draw(t, "id"))
				x.Remove(id)
				delete(all, id)
			},
			"": func(t *rapid.T) {
				scope, match := anExpression(t, "scope"), anExpression(t, "match")
				want, got := map[string]int{}, map[string]int{}
				for _, s := range all {
					if scope.Matches(s.Subject) && match.Matches(s.Subject) {
						want[s.group]++
					}
				}
				if x.Count(got, scope, match); !maps.Equal(want, got) {
					t.Fatalf("%+v and %+v hold for %v, the index has %v", *scope, *match, want, got)
				}
			},
		})
		for id := range all {
			x.Remove(id)
		}
		if len(x.keys)+len(x.labels)+len(x.groups)+len(x.slots) > 0 || !x.all.empty() {
			t.Fatalf("without subjects the index has %+v", x)
		}
	})
}
