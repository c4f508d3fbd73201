package intent

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"pgregory.net/rapid"
)

// TestDefaults is the table of docs/authorisation.md: what holds where no rule
// matches, in two namespaces.
func TestDefaults(t *testing.T) {
	for kind, want := range map[Kind][2]Decision{ // in kube-system, elsewhere
		ClassSystem: {Allow, Refuse}, ClassDedicated: {Allow, Allow}, ClassShared: {Allow, Allow}, ClassReclaimed: {Allow, Allow},
		AssignedCPUs: {Cap, Cap}, NUMANodes: {Allow, Allow}, NUMAExclusive: {Refuse, Refuse}, NamedPool: {Allow, Allow}, BatchResources: {Cap, Cap}, GPUEnv: {Allow, Allow}, GPULibrary: {Allow, Allow},
		HugepageLimits: {Cap, Cap}, DiskLimits: {Allow, Allow}, BlockIO: {Refuse, Refuse},
		OOMScore: {Refuse, Refuse}, RDT: {Refuse, Refuse}, CoreSched: {Refuse, Refuse},
		Preemption: {Allow, Allow}, MemoryKept: {Refuse, Refuse}, BurstKind: {Allow, Allow}, CacheLimit: {Allow, Allow}, Devices: {Refuse, Refuse}, Mounts: {Refuse, Refuse},
		"of a later version": {Refuse, Refuse},
	} {
		if got := [2]Decision{Rules{}.For(kind, "kube-system").Decision, Rules(nil).For(kind, "shop").Decision}; got != want {
			t.Errorf("%s: %v, want %v", kind, got, want)
		}
	}
	for _, s := range subjects(&Pod{Class: Sourced[Class]{Shared, "k"}}) {
		if !slices.Contains(KindNames(), string(s.kind)) {
			t.Errorf("%s has no default", s.kind)
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

func resources(shares uint64, quota int64, period uint64) *lifecycle.Resources {
	var r lifecycle.Resources
	r.CPU = lifecycle.CPU{Shares: lifecycle.Some(shares), Quota: lifecycle.Some(quota), Period: lifecycle.Some(period)}
	return &r
}

func TestDue(t *testing.T) {
	for _, c := range []struct {
		name string
		r    *lifecycle.Resources
		want Share
	}{
		{"nothing", nil, Share{}},
		{"empty", &lifecycle.Resources{}, Share{}},
		{"BestEffort", resources(2, 0, 0), Share{}},
		{"limit and equal request", resources(2048, 200000, 100000), Share{2, "limit"}},
		{"limit alone", resources(0, 200000, 0), Share{2, "limit"}},
		{"request alone", resources(2048, -1, 100000), Share{2, "request"}},
		{"small request, large limit", resources(102, 6400000, 100000), Share{1, "request"}},
		{"rounded up", resources(1536, 150000, 100000), Share{2, "limit"}},
		{"another period", resources(0, 20000, 10000), Share{2, "limit"}},
		{"a request above what shares tell", resources(262144, 30000000, 100000), Share{300, "limit"}},
		{"largest shares", resources(math.MaxUint64, 100000, 100000), Share{1, "limit"}},
		{"largest quota", resources(0, math.MaxInt64, 1), Share{1 << 30, "limit"}},
		{"largest period", resources(0, 200000, math.MaxUint64), Share{2, "limit"}},
		{"smallest quota", resources(0, math.MinInt64, 1), Share{}},
	} {
		if got := Due(c.r); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestCPUs(t *testing.T) {
	rule := func(d Decision, most int) Rules {
		return Rules{{Kinds: []Kind{AssignedCPUs}, Namespaces: []string{"*"}, Decision: d, MostCPUs: most, Name: "rule 1"}}
	}
	two, four := resources(2048, 200000, 100000), resources(4096, 400000, 100000)
	for _, c := range []struct {
		name      string
		rules     Rules
		n         int
		pod, told *lifecycle.Resources
		want      string
	}{
		{name: "as many as the pod has", n: 4, pod: four, told: two},
		{name: "a sidecar without a limit", n: 4, pod: four, told: resources(2, 0, 0)},
		{name: "more than the pod has", n: 5, pod: four, told: resources(8192, 800000, 100000), want: "5 CPUs are more than the pod's CPU limit of 4"},
		{name: "the pod's was not told", n: 2, told: two},
		{name: "more than the container's", n: 3, told: two, want: "the container's CPU limit of 2"},
		{name: "nothing told", n: 1, want: "neither"},
		{name: "allowed", rules: rule(Allow, 0), n: 99},
		{name: "refused", rules: rule(Refuse, 0), n: 1, pod: four, want: "may not ask for it (authorisation: rule 1)"},
		{name: "bounded", rules: rule(Cap, 3), n: 4, pod: four, want: "more than the 3 that"},
		{name: "within the bound", rules: rule(Cap, 4), n: 4, pod: four},
		{name: "the bound is not a grant", rules: rule(Cap, 8), n: 5, pod: four, want: "limit of 4"},
	} {
		got := ""
		if err := c.rules.CPUs("shop", c.n, c.pod, c.told); err != nil {
			got = err.Error()
		}
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestAuthoriseRefuses takes every kind of intent from a pod that has them all.
func TestAuthoriseRefuses(t *testing.T) {
	full := func() *Pod {
		return &Pod{
			Class: Sourced[Class]{Shared, "class"}, Name: "LS", QoS: BestEffort,
			CPUs: Sourced[[]int]{[]int{1}, "cpus"}, Nodes: Sourced[[]int]{[]int{0}, "nodes"},
			Batch: Sourced[map[string]Batch]{map[string]Batch{"a": {}}, "batch"},
			GPU:   Sourced[GPU]{GPU{Minors: []int{0}, Shared: &GPUShare{}}, "gpu"},
		}
	}
	nobody := Rules{{Kinds: []Kind{"*"}, Namespaces: []string{"*"}, Decision: Refuse, Name: "rule 1"}}
	got := nobody.Authorise(full(), "shop")
	if !got.Silent() || got.Name != "" || len(got.Problems) != 5 {
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
	if library.GPU.V.Shared != nil || !library.GPU.Said() || len(library.Problems) != 1 {
		t.Errorf("without the library: %+v", library)
	}
	in := full()
	in.QoS = Burstable
	if out := (Rules{}).Authorise(in, "shop"); out.Batch.Said() || !in.Batch.Said() || len(out.Problems) != 1 {
		t.Errorf("batch resources of a Burstable pod: %+v", out)
	}
	if out := (Rules{}).Authorise(full(), "shop"); len(out.Problems) != 0 || out.Silent() {
		t.Errorf("a pod of good manners: %+v", out)
	}
}

// TestProblemsAreBounded keeps the one that strict mode must see among many.
func TestProblemsAreBounded(t *testing.T) {
	p := &Pod{}
	for range 5000 {
		p.warn("k", "v", "odd")
	}
	p.problem("k", "v", "wrong")
	p.refuse("k", "v", "not granted")
	p.Problems = p.found.List()
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

// TestDocsNameEveryKind keeps the users' page complete.
func TestDocsNameEveryKind(t *testing.T) {
	page, err := os.ReadFile("../../docs/authorisation.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range Defaults() {
		if !strings.Contains(string(page), "`"+string(d.Kind)+"`") {
			t.Errorf("docs/authorisation.md does not name %s", d.Kind)
		}
	}
}
