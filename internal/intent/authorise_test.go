package intent

import (
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestDefaults: the decisions if no rule matches, in two namespaces.
func TestDefaults(t *testing.T) {
	for kind, want := range map[Kind][2]Decision{ // in kube-system, and in other namespaces
		ClassSystem: {Allow, Refuse}, ClassDedicated: {Allow, Allow}, ClassShared: {Allow, Allow}, ClassReclaimed: {Allow, Allow},
		AssignedCPUs: {Cap, Cap}, NUMANodes: {Allow, Allow}, NUMAExclusive: {Refuse, Refuse}, NamedPool: {Allow, Allow}, BatchResources: {Cap, Cap}, GPUEnv: {Allow, Allow}, GPULibrary: {Refuse, Refuse},
		HugepageLimits: {Cap, Cap}, DiskLimits: {Allow, Allow}, BlockIO: {Refuse, Refuse},
		OOMScore: {Refuse, Refuse}, RDT: {Refuse, Refuse}, CoreSched: {Refuse, Refuse},
		Preemption: {Allow, Allow}, MemoryProtection: {Refuse, Refuse}, BurstKind: {Allow, Allow}, CacheLimit: {Allow, Allow}, Devices: {Refuse, Refuse}, Mounts: {Refuse, Refuse},
		"of a later version": {Refuse, Refuse},
	} {
		if got := [2]Decision{Rules{}.For(kind, "kube-system").Decision, Rules(nil).For(kind, "shop").Decision}; got != want {
			t.Errorf("%s: %v, want %v", kind, got, want)
		}
	}
}

func TestFirstMatchWins(t *testing.T) {
	rules := Rules{
		{Kinds: []Kind{AssignedCPUs}, Namespaces: []string{"team-a", "db-*"}, Decision: Allow, Name: "1"},
		{Kinds: []Kind{"class", RDT}, Namespaces: []string{"db-?"}, Decision: Refuse, Name: "2"},
		{Kinds: []Kind{"*"}, Namespaces: []string{"*"}, Decision: Refuse, Name: "3"},
	}
	for _, c := range []struct {
		kind Kind
		ns   string
		want string
	}{
		{AssignedCPUs, "team-a", "1"},
		{AssignedCPUs, "team-ab", "3"},
		{AssignedCPUs, "db-1", "1"},
		{ClassSystem, "db-1", "2"},
		{ClassReclaimed, "db-12", "3"},
		{RDT, "db-1", "2"},
		{Mounts, "", "3"},
		{Mounts, "a/b", "3"},
		{Mounts, "a\nb", "3"},
		{ClassShared, "kube-system", "3"},
	} {
		if got := rules.For(c.kind, c.ns).Name; got != c.want {
			t.Errorf("%s in %q: rule %s, want %s", c.kind, c.ns, got, c.want)
		}
	}
}

func TestMatchNamespace(t *testing.T) {
	for _, c := range []struct {
		pattern, ns string
		want        bool
	}{
		{"shop", "shop", true},
		{"shop", "Shop", false},
		{"shop", "shop ", false},
		{"*", "", true},
		{"*", "a/b", true},
		{"db-*", "db-", true},
		{"db-*", "adb-1", false},
		{"[ab]-1", "b-1", true},
		{"[^ab]-1", "b-1", false},
		{"a[", "a", false},
		{"shop", "sh\u043ep", false}, // a Cyrillic o
		{strings.Repeat("a*", 31), strings.Repeat("a", 4096) + "b", true},
		{strings.Repeat("a*", 31) + "c", strings.Repeat("a", 4096) + "b", false},
	} {
		if got := MatchNamespace(c.pattern, c.ns); got != c.want {
			t.Errorf("%q fits %q: %v", c.ns, c.pattern, got)
		}
	}
}

// TestAuthoriseRefuses refuses every kind of intent of a pod that has all kinds.
func TestAuthoriseRefuses(t *testing.T) {
	full := func() *Pod {
		return &Pod{
			Class: Sourced[Class]{Shared, "class"}, ClassName: "LS", QoS: BestEffort,
			CPUs: Sourced[[]int]{[]int{1}, "cpus"}, Nodes: Sourced[[]int]{[]int{0}, "nodes"},
			Batch: Sourced[map[string]Batch]{map[string]Batch{"a": {}}, "batch"},
			GPU:   Sourced[GPU]{GPU{Minors: []int{0}, Share: &GPUShare{}}, "gpu"},
		}
	}
	refuseAll := Rules{{Kinds: []Kind{"*"}, Namespaces: []string{"*"}, Decision: Refuse, Name: "rule 1"}}
	got := refuseAll.Authorise(full(), "shop")
	if !got.Silent() || got.ClassName != "" || len(got.Problems) != 5 {
		t.Errorf("%+v", got)
	}
	for _, p := range got.Problems {
		if !p.Refused || p.Key == "" || p.Value == "" || !strings.Contains(p.Reason, "rule 1") {
			t.Errorf("%+v", p)
		}
	}
	if len(got.Malformed()) != 5 {
		t.Error("strict mode must refuse a refusal")
	}
	library := Rules{{Kinds: []Kind{GPULibrary}, Namespaces: []string{"*"}, Decision: Refuse}}.Authorise(full(), "shop")
	if library.GPU.V.Share != nil || !library.GPU.IsSet() || len(library.Problems) != 1 {
		t.Errorf("without the library: %+v", library)
	}
	in := full()
	in.QoS = Burstable
	if out := (Rules{}).Authorise(in, "shop"); out.Batch.IsSet() || !in.Batch.IsSet() || len(out.Problems) != 1 {
		t.Errorf("batch resources of a Burstable pod: %+v", out)
	}
	if out := (Rules{}).Authorise(full(), "shop"); len(out.Problems) != 0 || out.Silent() {
		t.Errorf("a pod of good manners: %+v", out)
	}
}

// TestProblemsAreBounded: among many problems the one that strict mode needs is kept.
func TestProblemsAreBounded(t *testing.T) {
	p := &Pod{}
	for range 5000 {
		p.reportWarning("k", "v", "odd")
	}
	p.reportMalformed("k", "v", "wrong")
	p.reportRefused("k", "v", "not granted")
	p.Problems = p.problems.List()
	got := Rules{}.Authorise(p, "shop")
	if len(got.Problems) != lifecycle.MaxProblems || len(got.Malformed()) != 2 || !strings.Contains(got.Problems[lifecycle.MaxProblems-1].Reason, "4983 more") {
		t.Errorf("%d problems, %v, %v", len(got.Problems), got.Malformed(), got.Problems[len(got.Problems)-1])
	}
}

func TestPrintable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.SampledFrom([]rune("a\u202e\u2066\u200b\u00a0\x00\n\x1b\ufeff\U000e0041\u2028")))).Draw(t, "text")
		got := Printable(s)
		if len(got) > 150 {
			t.Errorf("%d bytes", len(got))
		}
		for _, r := range got {
			if !unicode.IsPrint(r) {
				t.Errorf("%U is left in %q", r, got)
			}
		}
	})
}

// Silent reports whether no dialect has a request.
func (p *Pod) Silent() bool {
	said := p.Cores.IsSet()
	for _, r := range requests {
		said = said || r.key(p) != ""
	}
	return !said
}
