package rules

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/test/clock"
)

// TestBadRules checks the messages about invalid rules.
func TestBadRules(t *testing.T) {
	set := env(`"1"`)
	for _, test := range []struct {
		name string
		rule RuleOptions
		want string
	}{
		{"no name", RuleOptions{Match: "true", Set: set}, `rules[0].name: is "", want at most 63 small letters`},
		{"a name in capitals", RuleOptions{Name: "Web", Match: "true", Set: set}, `rules[0].name: is "Web", want at most 63 small letters`},
		{"no match", RuleOptions{Name: "r", Set: set}, `rules[0].match: is missing, want an expression`},
		{"nothing set", RuleOptions{Name: "r", Match: "true"}, `rules[0]: has no effect`},
		{
			"no CEL", RuleOptions{Name: "r", Match: "pod.labels[", Set: set},
			`rules[0].match: line 1, column 12: is not valid CEL: mismatched input '<EOF>'`,
		},
		{
			"an unknown variable", RuleOptions{Name: "r", Match: "true &&\n  node.name == 'a'", Set: set},
			`rules[0].match: line 2, column 3: undeclared reference to 'node'`,
		},
		{"an unknown field", RuleOptions{Name: "r", Match: "pod.label.app == 'a'", Set: set}, `rules[0].match: line 1, column 4: undefined field 'label'`},
		{"a text for a number", RuleOptions{Name: "r", Match: "container.resources.cpu > '1'", Set: set}, `line 1, column 25: found no matching overload for '_>_'`},
		{"no condition", RuleOptions{Name: "r", Match: "pod.name", Set: set}, `rules[0].match: line 1, column 1: is of type string, want bool`},
		{
			"too many loops",
			RuleOptions{Name: "r", Match: "pod.labels.all(a, pod.labels.all(b, pod.labels.all(c, pod.labels.all(d, a + b + c == d))))", Set: set},
			`rules[0].match: line 1, column 1: may cost`,
		},
		{"a very long one", RuleOptions{Name: "r", Match: strings.Repeat("true && ", 1000) + "true", Set: set}, `rules[0].match: is 8004 bytes long; an expression may have at most 4096`},
		{"very deep", RuleOptions{Name: "r", Match: strings.Repeat("(", 900) + "true" + strings.Repeat(")", 900), Set: set}, `rules[0].match: line`},
		{"a pattern that is none", RuleOptions{Name: "r", Match: `pod.name.matches("[")`, Set: set}, `missing closing ]`},
		{
			"a class by the container", RuleOptions{Name: "r", Match: "container.name == 'a'", Class: "shared"},
			`rules[0].match: line 1, column 1: uses the container, but only the pod is available here: class, pool and numa apply to the whole pod`,
		},
		{
			"a pod's value by the container", RuleOptions{Name: "r", Match: "container.name == 'a'", Set: []SettingOptions{{Field: "cpu.shares", Value: "2", Scope: "pod"}}},
			`uses the container, but only the pod is available here: set[0] has the scope pod`,
		},
		{
			"a pod's value of the container", RuleOptions{Name: "r", Match: "true", Set: []SettingOptions{{Field: "cpu.shares", ValueExpression: "container.resources.shares", Scope: "pod"}}},
			`rules[0].set[0].valueExpression: line 1, column 1: undeclared reference to 'container'`,
		},
		{"a pod's environment", RuleOptions{Name: "r", Match: "true", Set: []SettingOptions{{Field: "env", Key: "A", Scope: "pod"}}}, `rules[0].set[0].scope: is pod, but only containers have env: want container`},
		{"nothing to be asked for", RuleOptions{Name: "r", Match: "true", Set: set, UnlessAsked: true}, `rules[0].unlessAsked: has no effect, because the rule sets none of class, pool and numa`},
		{"a refusal that sets", RuleOptions{Name: "r", Match: "true", Set: set, Refuse: "no"}, `rules[0].refuse: cannot be combined`},
		{"an unknown setting", RuleOptions{Name: "r", Match: "true", Set: []SettingOptions{{Field: "cpu"}}}, `rules[0].set[0].field: is "cpu", want the name of a field`},
		{"CPUs", RuleOptions{Name: "r", Match: "true", Set: []SettingOptions{{Field: "cpuset.cpus", Value: "0"}}}, `rules[0].set[0].field: is "cpuset.cpus", which no rule can set: the agent decides for the whole node`},
		{"a key too many", RuleOptions{Name: "r", Match: "true", Set: []SettingOptions{{Field: "cpu.shares", Key: "a", Value: "2"}}}, `rules[0].set[0].key: is "a", but cpu.shares has no entries`},
		{"no key", RuleOptions{Name: "r", Match: "true", Set: []SettingOptions{{Field: "env", Value: "2"}}}, `rules[0].set[0].key: is missing, want the name of the variable`},
		{"a bad key", RuleOptions{Name: "r", Match: "true", Set: []SettingOptions{{Field: "env", Key: "A=B", Value: "2"}}}, `rules[0].set[0].key: is "A=B", want the name of the variable`},
		{"a path with ..", RuleOptions{Name: "r", Match: "true", Set: []SettingOptions{{Field: "mount", Key: "/a/../b", Value: "/c"}}}, `rules[0].set[0].key: is "/a/../b", which is not the shortest form of the path: want /b`},
		{"a source with ..", RuleOptions{Name: "r", Match: "true", Set: []SettingOptions{{Field: "mount", Key: "/a", Value: "/c/.."}}}, `rules[0].set[0].value: is "/c/..", want an absolute path`},
		{"a file with a field", RuleOptions{Name: "r", Match: "true", Set: []SettingOptions{{Field: "unified", Key: "memory.max", Value: "1"}}}, `is "memory.max", which the field memory.limit sets`},
		{"a limit of another name", RuleOptions{Name: "r", Match: "true", Set: []SettingOptions{{Field: "rlimit", Key: "NOFILE", Value: "1:2"}}}, `rules[0].set[0].key: is "NOFILE", want the name of the limit, such as RLIMIT_NOFILE`},
		{"a soft limit above the hard one", RuleOptions{Name: "r", Match: "true", Set: []SettingOptions{{Field: "rlimit", Key: "RLIMIT_NOFILE", Value: "2:1"}}}, `rules[0].set[0].value: is "2:1", want the soft and the hard limit`},
		{"an I/O level out of range", RuleOptions{Name: "r", Match: "true", Set: []SettingOptions{{Field: "io.priority", Key: "", Value: "IOPRIO_CLASS_BE 8"}}}, `want class and level`},
		{"a scheduler that is none", RuleOptions{Name: "r", Match: "true", Set: []SettingOptions{{Field: "scheduler", Key: "", Value: "SCHED_FAST"}}}, `want the policy and its parameters`},
		{"nodes of no memory policy", RuleOptions{Name: "r", Match: "true", Set: []SettingOptions{{Field: "memory.policy", Key: "", Value: "MPOL_BIND nodes=x"}}}, `want mode, nodes and flags`},
		{"a parameter of the host's", RuleOptions{Name: "r", Match: "true", Set: []SettingOptions{{Field: "sysctl", Key: "vm.swappiness", Value: "1"}}}, `is "vm.swappiness", which is not a parameter of a container's own namespaces`},
		{"a long interface name", RuleOptions{Name: "r", Match: "true", Set: []SettingOptions{{Field: "net.device", Key: "eth0", Value: "a-very-long-name"}}}, `rules[0].set[0].value: is "a-very-long-name"`},
		{"no setting", RuleOptions{Name: "r", Match: "true", Set: []SettingOptions{{Field: "unified", Key: "cgroup.kill", Value: "1"}}}, `is "cgroup.kill", which is not a setting of a container`},
		{"the node's", RuleOptions{Name: "r", Match: "true", Set: []SettingOptions{{Field: "unified", Key: "cpuset.cpus.partition", Value: "root"}}}, `which the agent decides for the whole node`},
		{"our annotation", RuleOptions{Name: "r", Match: "true", Set: []SettingOptions{{Field: "annotation", Key: "trimtab.io/record", Value: "1"}}}, `is reserved for the agent`},
		{"no number", RuleOptions{Name: "r", Match: "true", Set: []SettingOptions{{Field: "cpu.shares", Value: "2k"}}}, `rules[0].set[0].value: is "2k", want a number in quotes: shares`},
		{"a number out of range", RuleOptions{Name: "r", Match: "true", Set: []SettingOptions{{Field: "oom.score", Value: "2000"}}}, `rules[0].set[0].value: is 2000, want -1000 to 1000`},
		{"a text from a number", RuleOptions{Name: "r", Match: "true", Set: env(`container.resources.cpu`)}, `rules[0].set[0].valueExpression: line 1, column 1: is of type int, want string`},
		{"a group's share of a container", RuleOptions{Name: "r", Match: "true", Set: []SettingOptions{{Field: "rdt.schemata", Key: "trimtab-a", Value: "MB 5", Scope: "container"}}}, `rules[0].set[0].scope: is "container", but only pods have rdt.schemata: want pod`},
		{"another program's group", RuleOptions{Name: "r", Match: "true", Set: []SettingOptions{{Field: "rdt.group", Value: "other"}}}, `rules[0].set[0].value: is "other", want a resctrl group, a name that begins with trimtab-`},
		{"a share that is none", RuleOptions{Name: "r", Match: "true", Set: []SettingOptions{{Field: "rdt.schemata", Key: "trimtab-a", Value: "MB 500", Scope: "pod"}}}, `rules[0].set[0].value: is "MB 500", want shares of caches`},
		{"a cookie's group of two words", RuleOptions{Name: "r", Match: "true", Set: []SettingOptions{{Field: "core.sched", Value: "a b"}}}, `want the name of a core scheduling group`},
		{"both", RuleOptions{Name: "r", Match: "true", Set: []SettingOptions{{Field: "env", Key: "A", Value: "1", ValueExpression: `"1"`}}}, `rules[0].set[0].valueExpression: cannot be combined with value`},
		{"a device's value", RuleOptions{Name: "r", Match: "true", Set: []SettingOptions{{Field: "device", Key: "/dev/fuse", Value: "1"}}}, `the key of device already names the device`},
		{"options of no mount", RuleOptions{Name: "r", Match: "true", Set: []SettingOptions{{Field: "env", Key: "A", Options: []string{"ro"}}}}, `rules[0].set[0].options: are only for mounts`},
		{"nodes that are none", RuleOptions{Name: "r", Match: "true", NUMA: NUMAOptions{Nodes: "a"}}, `rules[0].numa.nodes: `},
		{"nodes that do not count", RuleOptions{Name: "r", Match: "true", NUMA: NUMAOptions{Nodes: "0-1", Count: 1}}, `rules[0].numa.count: is 1, but numa.nodes lists 2`},
	} {
		set, problems := Compile([]RuleOptions{test.rule})
		var all []string
		for _, p := range problems {
			all = append(all, p.String())
		}
		if got := strings.Join(all, "\n"); set != nil || !strings.Contains(got, test.want) {
			t.Errorf("%s: %s\nwant %s", test.name, got, test.want)
		}
	}
}

func TestTwoOfOneName(t *testing.T) {
	rule := RuleOptions{Name: "r", Match: "true", Set: env(`"1"`)}
	_, problems := Compile([]RuleOptions{rule, rule})
	if len(problems) != 1 || problems[0].String() != `rules[1].name: is "r", which is also the name of rules[0]: give each rule its own name` {
		t.Error(problems)
	}
}

// FuzzExpression compiles any text as a condition: it is refused with a place, or
// evaluated without a panic and within its cost.
func FuzzExpression(f *testing.F) {
	for _, seed := range []string{
		`true`, `pod.labels["app"] == "web"`, `container.image.matches("^a.*b$")`, `pod.labels.exists(k, k == pod.name)`,
		`[1,2,3].map(i, i * container.resources.cpu).exists(i, i > 4)`, `pod.annotations.all(a, pod.annotations[a].size() < 9)`,
		`"` + strings.Repeat("a", 100) + `".matches("(a+)+$")`, `int("9223372036854775807") + 1 > 0`, `timestamp("2024-01-01T00:00:00Z").getFullYear() > 1`,
		`{"a": 1}["b"] == 1`, `trimtab.Pod{name: "a"}.name == "a"`, `dyn(pod).nothing`, `pod.labels[`, "\xff", `b"a" == bytes(pod.name)`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		defer clock.Watch(t, len(text))()
		set, problems := Compile([]RuleOptions{{Name: "r", Match: text, Set: env(`string(container.resources.cpu)`)}})
		if (set == nil) == (len(problems) == 0) {
			t.Fatalf("%q: neither compiled nor refused", text)
		}
		for _, p := range problems {
			if p.What == "" || p.Path != "[0].match" || strings.ContainsRune(p.What, '\n') {
				t.Errorf("%q: %v", text, p)
			}
		}
		if set != nil {
			out := outputOf(set)
			if len(out.Values)+len(out.Problems) > 2 {
				t.Errorf("%q: %v %v", text, out.Values, out.Problems)
			}
		}
	})
}
