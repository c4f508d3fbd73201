package hookserver

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	hooks "github.com/trimtab/trimtab/api/runtime/v1alpha1"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/clock"
)

type (
	pRes = hooks.LinuxContainerResources
	pAsk = hooks.ContainerResourceHookRequest
	pAns = hooks.ContainerResourceHookResponse
)

func asked() *pAsk {
	return &pAsk{
		ContainerAnnotations: map[string]string{"a": "1", "b": "2"}, PodCgroupParent: "/kubepods/pod1",
		ContainerEnvs: map[string]string{"A": "1", "B": "2"},
		ContainerResources: &pRes{
			CpuPeriod: 100000, CpuQuota: 50000, CpuShares: 512, MemoryLimitInBytes: 1 << 30, OomScoreAdj: 900, CpusetCpus: "0-3", CpusetMems: "0",
			HugepageLimits: []*hooks.HugepageLimit{{PageSize: "2MB", Limit: 4}}, Unified: map[string]string{"memory.high": "5"}, MemorySwapLimitInBytes: 1 << 30,
		},
	}
}

// TestMergeTable tests each row of the table: how an answer changes the request.
func TestMergeTable(t *testing.T) {
	resources := func(change func(*pRes)) *pAns {
		r := &pRes{OomScoreAdj: 900} // which every server must return
		change(r)
		return &pAns{ContainerResources: r}
	}
	for name, c := range map[string]struct {
		answer  *pAns
		want    func(*pAsk)
		problem string
	}{
		"nothing":             {&pAns{}, nil, ""},
		"empty maps":          {&pAns{ContainerEnvs: map[string]string{}, ContainerAnnotations: map[string]string{}}, nil, ""},
		"annotations":         {&pAns{ContainerAnnotations: map[string]string{"b": "3", "c": ""}}, func(r *pAsk) { r.ContainerAnnotations = map[string]string{"a": "1", "b": "3", "c": ""} }, ""},
		"a record":            {&pAns{ContainerAnnotations: map[string]string{"trimtab.io/record": "x"}}, nil, "is reserved for the agent"},
		"variables":           {&pAns{ContainerEnvs: map[string]string{"B": "3", "C": "4"}}, func(r *pAsk) { r.ContainerEnvs = map[string]string{"B": "3", "C": "4"} }, ""},
		"no variables' names": {&pAns{ContainerEnvs: map[string]string{"": "1", "X=Y": "2"}}, nil, "not a valid name or value"},
		"parent as asked":     {&pAns{PodCgroupParent: "/kubepods/pod1"}, nil, ""},
		"another parent":      {&pAns{PodCgroupParent: "/"}, nil, "does not move"},
		"resources, silent":   {resources(func(*pRes) {}), nil, ""},
		"oom forgotten":       {&pAns{ContainerResources: &pRes{}}, func(r *pAsk) { r.ContainerResources.OomScoreAdj = 0 }, ""},
		"oom out of bounds":   {resources(func(r *pRes) { r.OomScoreAdj = -1001 }), nil, "-1000 to 1000"},
		"numbers": {resources(func(r *pRes) { r.CpuPeriod, r.CpuShares, r.MemoryLimitInBytes = 50000, 2, 1<<20 }), func(r *pAsk) {
			r.ContainerResources.CpuPeriod, r.ContainerResources.CpuShares, r.ContainerResources.MemoryLimitInBytes = 50000, 2, 1<<20
		}, ""},
		"numbers below 0": {resources(func(r *pRes) {
			r.CpuPeriod, r.CpuShares, r.MemoryLimitInBytes, r.MemorySwapLimitInBytes = -1, -1, -1, -1
		}), nil, ""},
		"a wild period":      {resources(func(r *pRes) { r.CpuPeriod = 5 }), nil, "is not within"},
		"wild shares":        {resources(func(r *pRes) { r.CpuShares = 1 << 40 }), nil, "is not within"},
		"swap":               {resources(func(r *pRes) { r.MemorySwapLimitInBytes = 5 }), nil, "does not set swap"},
		"quota -1":           {resources(func(r *pRes) { r.CpuQuota = -1 }), func(r *pAsk) { r.ContainerResources.CpuQuota = -1 }, ""},
		"a wild quota":       {resources(func(r *pRes) { r.CpuQuota = 7 }), nil, "below the kernel's minimum of 1000"},
		"quota -2":           {resources(func(r *pRes) { r.CpuQuota = -2 }), nil, "below the kernel's minimum of 1000"},
		"CPUs":               {resources(func(r *pRes) { r.CpusetCpus, r.CpusetMems = "3,2", "0-1" }), func(r *pAsk) { r.ContainerResources.CpusetCpus, r.ContainerResources.CpusetMems = "2-3", "0-1" }, ""},
		"CPUs put otherwise": {resources(func(r *pRes) { r.CpusetCpus = "0,1,2,3" }), nil, ""},
		"no CPU":             {resources(func(r *pRes) { r.CpusetCpus = "x" }), nil, "cpuset_cpus"},
		"only commas":        {resources(func(r *pRes) { r.CpusetCpus = "," }), nil, "cpuset_cpus"},
		"hugepages":          {resources(func(r *pRes) { r.HugepageLimits = []*hooks.HugepageLimit{{PageSize: "1GB"}, nil} }), nil, ""},
		"unified": {resources(func(r *pRes) { r.Unified = map[string]string{"memory.low": "7"} }), func(r *pAsk) {
			r.ContainerResources.Unified = map[string]string{"memory.high": "5", "memory.low": "7"}
		}, ""},
		"unified cpuset":  {resources(func(r *pRes) { r.Unified = map[string]string{"cpuset.cpus": "0-7"} }), nil, "take CPUs or memory from other containers"},
		"unified freezer": {resources(func(r *pRes) { r.Unified = map[string]string{"cgroup.kill": "1"} }), nil, "move processes"},
		"unified path":    {resources(func(r *pRes) { r.Unified = map[string]string{"../memory.max": "1"} }), nil, "not a cgroup file"},
		"unified twice":   {resources(func(r *pRes) { r.Unified = map[string]string{"cpu.max": "max"} }), nil, "another field"},
	} {
		t.Run(name, func(t *testing.T) {
			want := asked()
			if c.want != nil {
				c.want(want)
			}
			before := asked()
			got, problems := mergeContainer("a.json", before, c.answer)
			if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(asked(), before, protocmp.Transform()); d != "" {
				t.Errorf("what was asked was changed: %s", d)
			}
			if (c.problem == "") != (len(problems) == 0) || c.problem != "" && !strings.Contains(problems[0].String(), c.problem) {
				t.Errorf("problems %v, want %q", problems, c.problem)
			}
		})
	}
}

func TestMergePod(t *testing.T) {
	in := &hooks.PodSandboxHookRequest{Labels: map[string]string{"a": "1"}, CgroupParent: "/kubepods/pod1"}
	got, problems := mergePod("a.json", in, &hooks.PodSandboxHookResponse{
		Labels: map[string]string{"a": "2"}, Annotations: map[string]string{"b": "3", "": "x"}, CgroupParent: "/elsewhere", Resources: &pRes{CpuShares: 7},
	})
	want := &hooks.PodSandboxHookRequest{Labels: map[string]string{"a": "2"}, Annotations: map[string]string{"b": "3"}, CgroupParent: "/kubepods/pod1"}
	if d := cmp.Diff(want, got, protocmp.Transform()); d != "" || len(problems) != 2 {
		t.Error(d, problems)
	}
}

// TestRulesNameEveryField: the table in the docs has every field of an answer.
func TestRulesNameEveryField(t *testing.T) {
	var rules strings.Builder
	for _, r := range Rules() {
		rules.WriteString(r.Field + " ")
	}
	for _, m := range []proto.Message{&pAns{}, &pRes{}} {
		fields := m.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			if name := string(fields.Get(i).Name()); !strings.Contains(rules.String(), name) {
				t.Errorf("no rule for %s", name)
			}
		}
	}
}

var words = rapid.SampledFrom([]string{"", "a", "A=B", "memory.high", "cpuset.cpus", "cgroup.procs", "x\x00", "trimtab.io/record", "PATH", "../x.y"})

func drawMap(t *rapid.T, label string) map[string]string {
	return rapid.MapOfN(words, words, 0, 4).Draw(t, label)
}

func drawResources(t *rapid.T, label string) *pRes {
	if rapid.Bool().Draw(t, label+" absent") {
		return nil
	}
	n := rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{-1, 0, 1, 2, 1000, 50000, 100000}))
	list := rapid.SampledFrom([]string{"", "0", "0-3", "3,1", "x", "0-", ",", "4096", "9-1"})
	return &pRes{
		CpuPeriod: n.Draw(t, "period"), CpuQuota: n.Draw(t, "quota"), CpuShares: n.Draw(t, "shares"), MemoryLimitInBytes: n.Draw(t, "memory"),
		OomScoreAdj: n.Draw(t, "oom"), CpusetCpus: list.Draw(t, "cpus"), CpusetMems: list.Draw(t, "mems"), Unified: drawMap(t, "unified"),
		MemorySwapLimitInBytes: n.Draw(t, "swap"), HugepageLimits: []*hooks.HugepageLimit{{PageSize: "2MB", Limit: 1}},
	}
}

// checkMerged checks what must hold for every answer.
func checkMerged(fail func(string, ...any), before, after *pAsk, answer *pAns) {
	a, n := before.GetContainerResources(), after.GetContainerResources()
	switch {
	case a.GetCpusetCpus() != "" && n.GetCpusetCpus() == "", a.GetCpusetMems() != "" && n.GetCpusetMems() == "":
		fail("a cpuset was emptied")
	case len(before.ContainerEnvs) > 0 && len(after.ContainerEnvs) == 0:
		fail("all variables were taken away")
	case before.PodCgroupParent != after.PodCgroupParent:
		fail("moved to %s", after.PodCgroupParent)
	case n.GetCpuQuota() != a.GetCpuQuota() && n.GetCpuQuota() != -1 && n.GetCpuQuota() < minQuota:
		fail("quota %d", n.GetCpuQuota())
	case !slices.EqualFunc(a.GetHugepageLimits(), n.GetHugepageLimits(), func(x, y *hooks.HugepageLimit) bool { return proto.Equal(x, y) }):
		fail("huge pages changed")
	case answer.GetContainerResources() == nil && !proto.Equal(a, n):
		fail("resources changed without an answer")
	}
	for k := range n.GetUnified() {
		if _, had := a.GetUnified()[k]; !had && (strings.HasPrefix(k, "cpuset") || strings.HasPrefix(k, "cgroup") || strings.Contains(k, "/")) {
			fail("unified %q", k)
		}
	}
	for k, v := range before.ContainerAnnotations {
		if now, has := after.ContainerAnnotations[k]; !has || now != v && answer.GetContainerAnnotations()[k] != now {
			fail("annotation %q was lost", k)
		}
	}
	if after.ContainerAnnotations["trimtab.io/record"] != before.ContainerAnnotations["trimtab.io/record"] {
		fail("a record was forged")
	}
}

// TestMergeProperties: no answer removes what must stay, and an answer that repeats the request changes
// nothing.
func TestMergeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := asked()
		if rapid.Bool().Draw(t, "bare") {
			before = &pAsk{}
		}
		answer := &pAns{ContainerAnnotations: drawMap(t, "annotations"), ContainerEnvs: drawMap(t, "envs"), PodCgroupParent: words.Draw(t, "parent"), ContainerResources: drawResources(t, "r")}
		after, _ := mergeContainer("a", before, answer)
		checkMerged(t.Fatalf, before, after, answer)

		// A problem that occurs twice is reported once.
		again, _ := mergeContainer("a", after, answer)
		if d := cmp.Diff(after, again, protocmp.Transform()); d != "" {
			t.Fatalf("not the same twice: %s", d)
		}
		// A server that returns the request changes nothing, and that is not a problem.
		echo, problems := mergeContainer("b", after, &pAns{
			ContainerAnnotations: maps.Clone(after.ContainerAnnotations), ContainerEnvs: maps.Clone(after.ContainerEnvs),
			PodCgroupParent: after.PodCgroupParent, ContainerResources: proto.CloneOf(after.ContainerResources),
		})
		if len(changedValues(after, echo)) > 0 || len(problems) > 0 {
			t.Fatalf("an echo of %v: changes %v, problems %v", after, changedValues(after, echo), problems)
		}
		// The changes describe the result.
		for _, v := range changedValues(before, after) {
			if v.Text == "" && !v.Field.IsNumeric() && v.Key == "" {
				t.Fatalf("an empty %s", v.Field)
			}
		}
	})
}

// FuzzMerge merges arbitrary bytes as an answer.
func FuzzMerge(f *testing.F) {
	long := strings.Repeat("0-4095,", 20_000) + "1"
	many := map[string]string{}
	for i := range 5_000 {
		many[fmt.Sprintf("trimtab.io/record%d", i)] = "x"
	}
	for _, a := range []*pAns{{}, {ContainerAnnotations: many, ContainerEnvs: many, ContainerResources: &pRes{CpusetCpus: long, CpusetMems: long, Unified: many}}, {ContainerEnvs: map[string]string{"A": "1"}, ContainerResources: &pRes{CpusetCpus: "1-2", CpuQuota: -1}}} {
		b, err := proto.Marshal(a)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		defer clock.Watch(t, len(data))()
		answer := &pAns{}
		if proto.Unmarshal(data, answer) != nil {
			return
		}
		before := asked()
		after, problems := mergeContainer("a", before, answer)
		if len(problems) > lifecycle.MaxProblems {
			t.Errorf("%d problems", len(problems))
		}
		checkMerged(t.Errorf, before, after, answer)
		for _, p := range problems {
			if strings.ContainsAny(p.Value, "\n\x00") || len(p.Value) > maxShown+10 {
				t.Errorf("a problem tells %q", p.Value)
			}
		}
		pod := &hooks.PodSandboxHookResponse{}
		if proto.Unmarshal(data, pod) == nil {
			mergePod("a", &hooks.PodSandboxHookRequest{}, pod)
		}
	})
}
