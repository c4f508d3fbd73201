package rules

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/resctrl"
)

// subjectOf is a pod of a web shop with one container.
func subjectOf() *hook.Input {
	return &hook.Input{
		Pod: &lifecycle.Pod{
			Name: "web-1", Namespace: "shop", Labels: map[string]string{"app": "web", "tier": "front"},
			Annotations: map[string]string{"shop.example/slots": "4"}, RuntimeHandler: "runc",
			Resources: &lifecycle.Resources{CPU: lifecycle.CPU{Shares: lifecycle.Some[uint64](4096)}},
		},
		Intent:              &intent.Pod{QoS: intent.Burstable},
		Container:           "main",
		ContainerProperties: hook.ContainerProperties{Image: "docker.io/library/nginx:1.27", Labels: map[string]string{"io.kubernetes.container.name": "main"}},
		Pristine: &lifecycle.Resources{
			CPU: lifecycle.CPU{
				Shares: lifecycle.Some[uint64](2048), Quota: lifecycle.Some[int64](250000), Period: lifecycle.Some[uint64](100000),
			},
			Memory: lifecycle.Memory{Limit: lifecycle.Some[int64](512 << 20)},
		},
	}
}

// one compiles one rule and makes its hook.
func one(t testing.TB, o RuleOptions) *Hook {
	t.Helper()
	o.Name = "r"
	set, problems := Compile([]RuleOptions{o})
	if problems != nil {
		t.Fatal(problems)
	}
	return set.Hooks(Facts{
		Namespaces:        map[string]map[string]string{"shop": {"team": "retail"}},
		Devices:           map[string]lifecycle.Device{"/dev/fuse": {Path: "/dev/fuse", Type: "c", Major: 10, Minor: 229}},
		UnsupportedFields: map[lifecycle.Field]string{lifecycle.CoreSched: "no cookies here"},
	})[0].(*Hook)
}

func env(expression string) []SettingOptions {
	return []SettingOptions{{Field: "env", Key: "X", ValueExpression: expression}}
}

func TestMatch(t *testing.T) {
	for expression, want := range map[string]bool{
		`true`:                                             true,
		`pod.labels["app"] == "web"`:                       true,
		`pod.labels.app == "web"`:                          true,
		`pod.labels["none"] == "web"`:                      false,
		`pod.labels["none"] != "web"`:                      false, // a look-up of a missing key
		`!("none" in pod.labels)`:                          true,
		`has(pod.labels.app)`:                              true,
		`has(pod.labels.none)`:                             false,
		`has(pod.pool)`:                                    false,
		`pod.namespace in ["shop", "till"]`:                true,
		`pod.namespaceLabels.team == "retail"`:             true,
		`pod.qos == "Burstable" && pod.class == "none"`:    true,
		`pod.runtimeHandler == "runc"`:                     true,
		`pod.resources.cpu == 4000`:                        true,
		`container.image.startsWith("docker.io/library/")`: true,
		`container.image.matches("nginx:1\\.[0-9]+$")`:     true,
		`container.resources.cpu == 2000 && container.resources.cpuLimit == 2500`: true,
		`container.resources.memory >= 512 * 1024 * 1024`:                         true,
		`container.kind == ""`:                                               true,
		`pod.labels.exists(k, k.startsWith("ti"))`:                           true,
		`int(pod.annotations["shop.example/slots"]) > 3`:                     true,
		`container.labels["io.kubernetes.container.name"] == container.name`: true,
		`pod == pod && type(container) != string`:                            true,
	} {
		out := &hook.Output{}
		one(t, RuleOptions{Match: expression, Set: env(`"1"`)}).Propose(subjectOf(), out)
		if got := len(out.Values) == 1; got != want || out.Matched != want || len(out.Problems) != 0 {
			t.Errorf("%s: matched %v, want %v; %v", expression, out.Matched, want, out.Problems)
		}
	}
}

func TestValues(t *testing.T) {
	for _, test := range []struct {
		set  SettingOptions
		want string // of the value
		key  string
	}{
		{SettingOptions{Field: "env", Key: "GOMAXPROCS", ValueExpression: `string(container.resources.cpu / 1000)`}, "2", "GOMAXPROCS"},
		{SettingOptions{Field: "env", Key: "EMPTY"}, "", "EMPTY"},
		{SettingOptions{Field: "cpu.shares", Value: "512"}, "512", ""},
		{SettingOptions{Field: "cpu.quota", ValueExpression: `container.resources.quota * 2`}, "500000", ""},
		{SettingOptions{Field: "memory.limit", Value: "-1"}, "-1", ""},
		{SettingOptions{Field: "unified", Key: "memory.high", Value: "400000000"}, "400000000", "memory.high"},
		{SettingOptions{Field: "hugepages", Key: "2MB", Value: "0"}, "0", "2MB"},
		{SettingOptions{Field: "mount", Key: "/etc/shop", Value: "/opt/shop"}, "/opt/shop -> /etc/shop", "/etc/shop"},
		{SettingOptions{Field: "mount", Key: "/data", ValueExpression: `"/srv/" + pod.namespace`}, "/srv/shop -> /data", "/data"},
		{SettingOptions{Field: "device", Key: "/dev/fuse"}, "/dev/fuse c 10:229", "/dev/fuse"},
		{SettingOptions{Field: "oom.score", Value: "-5"}, "-5", ""},
		{SettingOptions{Field: "rdt.group", ValueExpression: `"trimtab-" + pod.namespace`}, "trimtab-shop", ""},
		{SettingOptions{Field: "rdt.monitor", Value: "/trimtab-web"}, "/trimtab-web", ""},
		{SettingOptions{Field: "cdi", Key: "vendor.example/gpu=0"}, "", "vendor.example/gpu=0"},
	} {
		out := &hook.Output{}
		one(t, RuleOptions{Match: "true", Set: []SettingOptions{test.set}}).Propose(subjectOf(), out)
		if len(out.Values) != 1 || out.Values[0].String() != test.want || out.Values[0].Key != test.key {
			t.Errorf("%+v: got %v %v, want %q of %q", test.set, out.Values, out.Problems, test.want, test.key)
			continue
		}
		if why := (lifecycle.Reason{Hook: "rules.r", Source: "rules.r", Text: "set by the rule"}); out.Values[0].Why != why {
			t.Errorf("%+v: reason %+v", test.set, out.Values[0].Why)
		}
	}
}

// TestMountOptions checks that a mount is read-only, unless the rule says otherwise.
func TestMountOptions(t *testing.T) {
	for _, test := range []struct{ options, want []string }{
		{nil, []string{"bind", "ro", "nosuid", "nodev"}},
		{[]string{"rw", "noexec"}, []string{"bind", "rw", "noexec"}},
		{[]string{"rbind", "rslave"}, []string{"rbind", "rslave"}},
	} {
		for _, s := range []SettingOptions{
			{Field: "mount", Key: "/a", Value: "/b", Options: test.options},
			{Field: "mount", Key: "/a", ValueExpression: `"/b"`, Options: test.options},
		} {
			out := &hook.Output{}
			h := one(t, RuleOptions{Match: "true", Set: []SettingOptions{s}})
			for range 2 { // the second does not see what the first one left
				out = &hook.Output{}
				h.Propose(subjectOf(), out)
			}
			if diff := cmp.Diff(test.want, out.Values[0].Mount.Options); diff != "" {
				t.Errorf("%+v: %s", s, diff)
			}
		}
	}
}

// TestFailures checks that a failed evaluation is reported with its rule, and that its value is not set.
func TestFailures(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for name, test := range map[string]struct {
		rule   RuleOptions
		reason string
		failed bool
	}{
		"a number that is none": {
			RuleOptions{Match: `int(pod.labels["app"]) > 1`, Set: env(`"1"`)}, "its match cannot be evaluated: type conversion error", true,
		},
		"a value by a label that is missing": {
			RuleOptions{Match: "true", Set: env(`pod.labels["none"]`)}, "its valueExpression for env X cannot be evaluated: no such key: none", true,
		},
		"a loop over a text of a megabyte": {
			RuleOptions{Match: `pod.annotations["long"].matches("y+z")`, Set: env(`"1"`)}, "actual cost limit exceeded", true,
		},
		"division by zero": {
			RuleOptions{Match: `1000 / (container.resources.cpu - 2000) > 1`, Set: env(`"1"`)}, "division by zero", true,
		},
		"a number out of range": {
			RuleOptions{Match: "true", Set: []SettingOptions{{Field: "cpu.shares", ValueExpression: "container.resources.memory"}}},
			"its cpu.shares is 536870912, want 2 to 262144", false,
		},
		"a mount of no path": {
			RuleOptions{Match: "true", Set: []SettingOptions{{Field: "mount", Key: "/a", ValueExpression: `"../" + pod.name`}}},
			`its mount /a is "../web-1", want an absolute path on the node`, false,
		},
		"a field that the kernel lacks": {
			RuleOptions{Match: "true", Set: []SettingOptions{{Field: "core.sched", Value: "web"}}}, "this node cannot set its core.sched: no cookies here", false,
		},
		"a device that is missing": {
			RuleOptions{Match: "true", Set: []SettingOptions{{Field: "device", Key: "/dev/none"}}}, "this node has no device /dev/none", false,
		},
	} {
		in, out := subjectOf(), &hook.Output{}
		in.Pod.Annotations["long"] = long
		one(t, test.rule).Propose(in, out)
		if len(out.Values) != 0 || len(out.Problems) != 1 || !strings.Contains(out.Problems[0].Reason, test.reason) || (out.Failure != "") != test.failed {
			t.Errorf("%s: values %v, problems %v, failed %q; want %q", name, out.Values, out.Problems, out.Failure, test.reason)
			continue
		}
		if p := out.Problems[0]; p.Hook != "rules.r" || !p.Warning || p.Then == "" {
			t.Errorf("%s: %+v does not name the rule, or is the pod's fault", name, p)
		}
	}
}

func TestRefuse(t *testing.T) {
	h := one(t, RuleOptions{Match: `container.image.endsWith(":1.27")`, Refuse: "pin the image by digest"})
	out := &hook.Output{}
	if h.Propose(subjectOf(), out); out.Refusal != "rules.r: pin the image by digest" || !out.Matched {
		t.Errorf("refuses with %q", out.Refusal)
	}
	of := subjectOf()
	of.Container, out = "", &hook.Output{}
	if h.Propose(of, out); out.Refusal != "" || out.Matched {
		t.Error("refuses a pod's own values")
	}
}

func TestWishes(t *testing.T) {
	set, problems := Compile([]RuleOptions{
		{Name: "batch", Match: `pod.namespace == "shop"`, Class: "reclaimed", NUMA: NUMAOptions{Count: 1}},
		{Name: "again", Match: `pod.class == "reclaimed"`, Class: "reclaimed", Pool: "p"},
		{Name: "other", Match: `true`, Class: "shared"},
		{Name: "shy", Match: `true`, Pool: "q", UnlessAsked: true},
	})
	if problems != nil {
		t.Fatal(problems)
	}
	in := subjectOf()
	in.Container = ""
	asked := *in.Intent
	asked.Class = intent.Sourced[intent.Class]{V: intent.Dedicated, Key: "koordinator.sh/qosClass"}
	in.Intent = &asked
	var out hook.Output
	for _, h := range set.Hooks(Facts{}) {
		h.(hook.IntentChanger).ChangeIntent(in, &asked, &out)
	}
	want := intent.Pod{
		Class: intent.Sourced[intent.Class]{V: intent.Reclaimed, Key: "rules.batch"}, ClassName: "reclaimed", QoS: intent.Burstable,
		Pool: intent.Sourced[string]{V: "p", Key: "rules.again"},
		NUMA: intent.Sourced[intent.NUMABinding]{V: intent.NUMABinding{Count: 1}, Key: "rules.batch"},
	}
	if diff := cmp.Diff(want, asked, cmpopts.IgnoreUnexported(intent.Pod{})); diff != "" {
		t.Error(diff)
	}
	if len(out.Problems) != 1 || out.Problems[0].Hook != "rules.other" || !strings.Contains(out.Problems[0].Reason, "rules.batch") {
		t.Errorf("problems %v", out.Problems)
	}
}

// TestReadsNamespaces checks that labels of namespaces are requested if, and only if, a rule reads them.
func TestReadsNamespaces(t *testing.T) {
	for _, test := range []struct {
		rule RuleOptions
		want bool
	}{
		{RuleOptions{Name: "a", Match: `"namespaceLabels" in pod.labels`, Set: env(`"1"`)}, false},
		{RuleOptions{Name: "a", Match: `pod.namespaceLabels.exists(k, k == "x")`, Set: env(`"1"`)}, true},
		{RuleOptions{Name: "a", Match: `true`, Set: env(`pod.namespaceLabels.team`)}, true},
		{RuleOptions{Name: "a", Match: `has(pod.namespaceLabels.team)`, Set: env(`"1"`)}, true},
	} {
		if set, problems := Compile([]RuleOptions{test.rule}); problems != nil || set.ReadsNamespaces() != test.want {
			t.Errorf("%s: %v, want %v", test.rule.Match, problems, test.want)
		}
	}
}

// TestEveryFieldIsJudged checks that each field of the table can be set by a rule, or has a reason why not,
// and that each field that hooks set has a range and a key.
func TestEveryFieldIsJudged(t *testing.T) {
	if got, want := len(SettableFields())+len(PlacementFields()), len(lifecycle.Fields()); got != want {
		t.Errorf("%d fields are judged, want %d", got, want)
	}
	for _, f := range SettableFields() {
		if f.Compose == lifecycle.SetOncePerKey && f.Key == "" {
			t.Errorf("%s has no word for its key", f.Name)
		}
		if f.Field.IsNumeric() && f.Range == "" {
			t.Errorf("%s has no range", f.Name)
		}
	}
	for _, v := range Variables() {
		if v.About == "" || v.Type == "" {
			t.Errorf("%s is not described", v.Name)
		}
	}
}

// TestRulesSetWhatHooksSet: a rule can set every field that a hook sets, on a container and on a pod. The two lists of
// a cpuset are the exception: no hook decides them, and a rule changes them by class, pool and numa.
func TestRulesSetWhatHooksSet(t *testing.T) {
	settable := map[string]bool{lifecycle.CPUSetCPUs.String(): true, lifecycle.CPUSetMems.String(): true}
	for _, name := range FieldNames() {
		if settable[name] {
			t.Errorf("%s can be set, and is an exception here", name)
		}
		settable[name] = true
	}
	seen := 0
	for _, h := range hook.Catalogue() {
		for _, f := range h.Sets {
			if seen++; !settable[f.String()] || slices.Contains(podOnlyFields, f) {
				t.Errorf("the hook %s sets %s of a container, and no rule can", h.Name, f)
			}
		}
		for _, f := range h.SetsOnPod {
			if seen++; !settable[f.String()] || !slices.Contains(podFields, f) {
				t.Errorf("the hook %s sets %s of a pod, and no rule can", h.Name, f)
			}
		}
	}
	if seen < 30 {
		t.Errorf("only %d fields of hooks were compared", seen)
	}
}

// TestShares: rules accept the shares of a group that package resctrl accepts.
func TestShares(t *testing.T) {
	for _, text := range []string{"L3 0-30", "L3 0-30, MB 50", "L3@1 20-60, MB@0 100", "MB 0", "MB 101", "L3 30-30", "L3 40-20", "L3 5", "MB 0-5", "L2 0-10", "MB@x 5", "", "MB 5,MB 6", "MB 5, "} {
		_, err := resctrl.ParseAllocation(text)
		if wrong := checkText(lifecycle.RDTSchemata, "trimtab-a", text); (wrong == "") != (err == nil) {
			t.Errorf("%q: rules say %q, resctrl says %v", text, wrong, err)
		}
	}
}
