package intent

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/clock"
	"github.com/trimtab/trimtab/test/hostile"
	"pgregory.net/rapid"
)

func TestKatalystLevels(t *testing.T) {
	for name, want := range map[string]Class{
		"dedicated_cores": Dedicated, "shared_cores": Shared, "reclaimed_cores": Reclaimed, "system_cores": System,
		"": None, "Shared_cores": None, "shared": None,
	} {
		got := read(nil, map[string]string{KatalystQoSLevel: name})
		if got.Class.V != want || (len(got.Problems) > 0) != (want == None && name != "") {
			t.Errorf("%q is read as %s, want %s; problems %v", name, got.Class.V, want, got.Problems)
		}
	}
}

// TestEnhancements: each case is a level, its cpu and its memory enhancement.
func TestEnhancements(t *testing.T) {
	const dedicated, shared, reclaimed, system = "dedicated_cores", "shared_cores", "reclaimed_cores", "system_cores"
	for _, c := range []struct {
		name, level, cpu, memory string
		more                     map[string]string
		want                     NUMABinding
		bound                    bool
		pool                     string
		problems                 []string
	}{
		{name: "bound", level: dedicated, memory: `{"numa_binding":"true"}`, bound: true},
		{name: "in the other object", level: dedicated, cpu: `{"numa_binding":"true"}`, bound: true},
		{name: "exclusive", level: dedicated, memory: `{"numa_binding":"true","numa_exclusive":"true"}`, bound: true, want: NUMABinding{Exclusive: true}},
		{name: "false", level: dedicated, memory: `{"numa_binding":"false","numa_exclusive":"false"}`},
		{name: "exclusive and not bound", level: dedicated, memory: `{"numa_exclusive":"true"}`, problems: []string{"numa_exclusive: only together with numa_binding"}},
		{
			name: "exclusive and shared", level: shared, memory: `{"numa_binding":"true","numa_exclusive":"true"}`, bound: true,
			problems: []string{"numa_exclusive: only for pods of dedicated_cores"},
		},
		{
			name: "H15: exclusive and whole cores", level: dedicated, cpu: `{"full_pcpus_pairing":"true"}`, memory: `{"numa_binding":"true","numa_exclusive":"true"}`,
			bound: true, want: NUMABinding{Exclusive: true}, problems: []string{"full_pcpus_pairing: not together with numa_exclusive"},
		},
		{
			name: "H19: exclusive and evenly", level: dedicated, cpu: `{"distribute_evenly_across_numa":"true","katalyst.kubewharf.io/numa_number":"2"}`,
			memory: `{"numa_binding":"true","numa_exclusive":"true"}`,
			bound:  true, want: NUMABinding{Exclusive: true, Count: 2}, problems: []string{"distribute_evenly_across_numa: not together with numa_exclusive"},
		},
		{
			name: "H17: evenly over one node", level: dedicated, cpu: `{"distribute_evenly_across_numa":"true"}`, memory: `{"numa_binding":"true"}`,
			bound: true, problems: []string{"needs more than one NUMA node"},
		},
		{
			name: "H16: evenly over four", level: dedicated, cpu: `{"distribute_evenly_across_numa":"true","katalyst.kubewharf.io/numa_number":"4"}`,
			memory: `{"numa_binding":"true"}`, bound: true, want: NUMABinding{Even: true, Count: 4},
		},
		{
			name: "whole cores by socket", level: dedicated, cpu: `{"full_pcpus_pairing":"true","align_by_socket":"true"}`, memory: `{"numa_binding":"true"}`,
			bound: true, want: NUMABinding{WholeCores: true, BySocket: true},
		},
		{
			name: "H27: ids", level: dedicated, cpu: `{"katalyst.kubewharf.io/numa_ids":"0,2-3"}`, memory: `{"numa_binding":"true"}`,
			bound: true, want: NUMABinding{IDs: []int{0, 2, 3}},
		},
		{
			name: "ids as an annotation of their own", level: dedicated, memory: `{"numa_binding":"true"}`, more: map[string]string{KatalystNUMAIDs: "1"},
			bound: true, want: NUMABinding{IDs: []int{1}},
		},
		{
			name: "bad ids", level: dedicated, cpu: `{"katalyst.kubewharf.io/numa_ids":"invalid"}`, memory: `{"numa_binding":"true"}`,
			bound: true, problems: []string{`"invalid" is not a number`},
		},
		{
			name: "ids and number", level: dedicated, cpu: `{"katalyst.kubewharf.io/numa_ids":"0-1","katalyst.kubewharf.io/numa_number":"3"}`,
			memory: `{"numa_binding":"true"}`, bound: true, want: NUMABinding{IDs: []int{0, 1}}, problems: []string{"lists 2 nodes, and has priority"},
		},
		{
			name: "number of a shared pod", level: shared, cpu: `{"katalyst.kubewharf.io/numa_number":"2"}`, memory: `{"numa_binding":"true"}`,
			bound: true, problems: []string{"only for pods of dedicated_cores with numa_binding"},
		},
		{
			name: "number 0", level: dedicated, cpu: `{"katalyst.kubewharf.io/numa_number":"0"}`, memory: `{"numa_binding":"true"}`,
			bound: true, problems: []string{"want a number from 1 to 64"},
		},
		{name: "alone", level: shared, cpu: `{"numa_share":"false"}`, memory: `{"numa_binding":"true"}`, bound: true, want: NUMABinding{ExcludeOthers: true}},
		{name: "alone and not bound", level: shared, cpu: `{"numa_share":"false"}`, problems: []string{"numa_share: only together with numa_binding"}},
		{name: "no yes and no no", level: shared, memory: `{"numa_binding":"yes"}`, problems: []string{`want the string "true" or "false"`}},
		{name: "no string", level: shared, memory: `{"numa_binding":true}`, problems: []string{"malformed JSON"}},
		{
			name: "two objects disagree", level: shared, cpu: `{"numa_binding":"true"}`, memory: `{"numa_binding":"false"}`, bound: true,
			problems: []string{"numa_binding: katalyst.kubewharf.io/cpu_enhancement has the value \"true\", which has priority"},
		},
		{name: "two objects agree", level: shared, cpu: `{"numa_binding":"true"}`, memory: `{"numa_binding":"true"}`, bound: true},

		{name: "pool", level: shared, cpu: `{"cpuset_pool":"batch"}`, pool: "batch"},
		{name: "A12: system pool", level: system, cpu: `{"cpuset_pool":"reserve"}`, pool: "reserve"},
		{name: "the agent's pool", level: shared, cpu: `{"cpuset_pool":"reserve"}`, problems: []string{"the agent uses a pool of this name itself"}},
		{name: "pool of a dedicated pod", level: dedicated, cpu: `{"cpuset_pool":"batch"}`, problems: []string{"only pods of shared_cores and system_cores"}},
		{name: "pool of a reclaimed pod", level: reclaimed, cpu: `{"cpuset_pool":"batch"}`, problems: []string{"only pods of shared_cores and system_cores"}},
		{name: "pool without a name", level: shared, cpu: `{"cpuset_pool":""}`},
		{name: "pool named with a space", level: shared, cpu: `{"cpuset_pool":"a b"}`, problems: []string{"not the name of a pool"}},
		{name: "pool of the default level", cpu: `{"cpuset_pool":"batch"}`, pool: "batch"},

		{name: "what nothing acts on", level: shared, memory: `{"rss_overuse_threshold":"1.2","oom_priority":"5"}`, problems: []string{"oom_priority is not supported", "rss_overuse_threshold is not supported"}},
		{name: "what nobody knows", level: shared, memory: `{"numa_bindng":"true"}`, problems: []string{"numa_bindng is not an enhancement"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			annotations := map[string]string{KatalystQoSLevel: c.level, KatalystCPU: c.cpu, KatalystMemory: c.memory}
			for key, text := range c.more {
				annotations[key] = text
			}
			got := read(nil, annotations)
			if diff := cmp.Diff(c.want, got.NUMA.V); diff != "" || got.NUMA.IsSet() != c.bound || got.Pool.V != c.pool {
				t.Errorf("%sbound %v, pool %q", diff, got.NUMA.IsSet(), got.Pool.V)
			}
			if len(got.Problems) != len(c.problems) {
				t.Fatalf("problems %v, want %v", got.Problems, c.problems)
			}
			for i, want := range c.problems {
				if !strings.Contains(got.Problems[i].String(), want) {
					t.Errorf("problem %q, want it to say %q", got.Problems[i], want)
				}
			}
			if c.level == "" && got.Class.V != Shared {
				t.Error("whoever speaks of enhancements means shared_cores")
			}
		})
	}
}

func TestBindResult(t *testing.T) {
	got := read(nil, map[string]string{KatalystBindResult: "1,3"})
	if fmt.Sprint(got.Nodes.V) != "[1 3]" || got.Nodes.Key != KatalystBindResult {
		t.Errorf("%+v", got.Nodes)
	}
	got = read(nil, map[string]string{KatalystBindResult: "1;3"})
	if got.Nodes.IsSet() || len(got.Problems) != 1 {
		t.Errorf("%+v", got)
	}
}

// TestExclusiveNodesAreAKind: excluding others from NUMA nodes is authorized separately, and the rest of
// the binding stays.
func TestExclusiveNodesAreAKind(t *testing.T) {
	p := read(nil, map[string]string{KatalystQoSLevel: "dedicated_cores", KatalystMemory: `{"numa_binding":"true","numa_exclusive":"true"}`})
	got := Rules(nil).Authorise(p, "shop")
	if got.NUMA.V.Exclusive || !got.NUMA.IsSet() || len(got.Problems) != 1 || !p.NUMA.V.Exclusive {
		t.Errorf("%+v, problems %v", got.NUMA, got.Problems)
	}
	allow := Rules{{Kinds: []Kind{NUMAExclusive}, Namespaces: []string{"shop"}, Decision: Allow}}
	if got := allow.Authorise(p, "shop"); !got.NUMA.V.Exclusive || len(got.Problems) > 0 {
		t.Errorf("%+v, problems %v", got.NUMA, got.Problems)
	}
	none := Rules{{Kinds: []Kind{NUMANodes}, Namespaces: []string{"*"}, Decision: Refuse}}
	if got := none.Authorise(p, "shop"); got.NUMA.IsSet() || got.NUMA.V.Exclusive {
		t.Errorf("%+v", got.NUMA)
	}
}

// TestKatalystIsDeterministic: every annotation is read in the same way each time, whatever the order of
// maps.
func TestKatalystIsDeterministic(t *testing.T) {
	keys := []string{
		"numa_binding", "numa_exclusive", "numa_share", "align_by_socket", "distribute_evenly_across_numa", "full_pcpus_pairing",
		"cpuset_pool", KatalystNUMAIDs, KatalystNUMANumber, "oom_priority", "zz", "aa",
	}
	object := rapid.Custom(func(t *rapid.T) string {
		var parts []string
		for _, key := range keys {
			if v := rapid.SampledFrom([]string{"", "", "true", "false", "2", "0-1", "pool", "9"}).Draw(t, key); v != "" {
				parts = append(parts, fmt.Sprintf("%q:%q", key, v))
			}
		}
		return "{" + strings.Join(parts, ",") + "}"
	})
	rapid.Check(t, func(t *rapid.T) {
		annotations := map[string]string{
			KatalystQoSLevel: rapid.SampledFrom([]string{"dedicated_cores", "shared_cores", "system_cores", "reclaimed_cores", "", "x"}).Draw(t, "level"),
			KatalystCPU:      object.Draw(t, "cpu"), KatalystMemory: object.Draw(t, "memory"), KatalystNetwork: object.Draw(t, "network"),
		}
		first := read(nil, annotations)
		for range 5 {
			if diff := cmp.Diff(first, read(nil, annotations), cmpopts.IgnoreUnexported(Pod{})); diff != "" {
				t.Fatal(diff)
			}
		}
		n := first.NUMA.V
		switch {
		case n.Exclusive && (n.Even || n.WholeCores), n.Even && max(n.Count, len(n.IDs)) < 2, n.Count > 0 && len(n.IDs) > 0:
			t.Fatalf("contradictions stand: %+v", n)
		case first.Class.V != Dedicated && (n.Exclusive || n.Even || n.WholeCores || n.BySocket || n.Count > 0 || len(n.IDs) > 0):
			t.Fatalf("%s: %+v", first.Class.V, n)
		}
	})
}

func FuzzKatalyst(f *testing.F) {
	f.Add("dedicated_cores", `{"numa_binding":"true"}`, "0-3")
	f.Add("shared_cores", `{"cpuset_pool":"-"}`, "-")
	long := strings.Repeat("0-4095,", 40_000) + "1"
	f.Add("dedicated_cores", `{"numa_binding":"true"}`, long)
	f.Add(long, `{"`+long+`":"`+long+`"}`, "0")
	for _, p := range hostile.Pods(lifecycle.MaxValueBytes) {
		if text := p.Annotations[KatalystCPU]; len(text) > 100 {
			f.Add("dedicated_cores", text, p.Annotations[KatalystNUMAIDs])
		}
	}
	f.Fuzz(func(t *testing.T, level, object, list string) {
		defer clock.Watch(t, len(level)+len(object)+len(list))()
		Read(&lifecycle.Pod{Annotations: map[string]string{
			KatalystQoSLevel: level, KatalystCPU: object, KatalystNUMAIDs: list, KatalystBindResult: list,
		}}, nil, Dialects())
	})
}
