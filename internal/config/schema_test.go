package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"
	"sigs.k8s.io/yaml"

	"github.com/trimtab/trimtab/internal/placement/balloons"
	"github.com/trimtab/trimtab/internal/placement/class"
	"github.com/trimtab/trimtab/internal/rules"
)

func TestEveryKeyIsDescribed(t *testing.T) {
	keys := Keys()
	if len(keys) < 30 {
		t.Fatalf("only %d keys", len(keys))
	}
	byPath := keyRules()
	for _, k := range keys {
		if k.About == "" {
			t.Errorf("%s: its field has no comment; docs and schema would be mute", k.Path)
		}
		if strings.HasPrefix(k.Type, "unreadable") {
			t.Errorf("%s: the decoder cannot read a key of this type: %s", k.Path, k.Type)
		}
		r, ok := byPath[k.Path]
		if !ok && (k.Type == "string" || k.Type == "integer") {
			t.Errorf("%s: any %s would be accepted; give it a tag check", k.Path, k.Type)
		}
		if ok && reflect.DeepEqual(r, rule{}) {
			t.Errorf("%s: its tag check is no list, no range and no name of checks", k.Path)
		}
	}
}

// TestDefaultTags: the default in a tag fits the type of its field, and Parse accepts it.
func TestDefaultTags(t *testing.T) {
	visitFields(keySample(), "", func(path string, f reflect.StructField, _ reflect.Type, _ reflect.Value) {
		text, ok := f.Tag.Lookup("default")
		_, errInt := strconv.Atoi(text)
		switch k := f.Type.Kind(); {
		case !ok, k == reflect.String, k == reflect.Slice:
		case k == reflect.Bool && text == "true", k == reflect.Int && errInt == nil:
		default:
			t.Errorf("%s: its tag default is %q", path, text)
		}
	})
	if problems := Validate(Default()); len(problems) > 0 {
		t.Error(problems)
	}
}

// TestNeedRestart lists the keys that need a restart, and a section only once.
func TestNeedRestart(t *testing.T) {
	c := Default()
	if keys := KeysNeedingRestart(c, Default()); len(keys) > 0 {
		t.Errorf("nothing differs, and %v", keys)
	}
	c.Paths.Sys, c.Paths.Dev, c.NRI.Index, c.NRI.Cede, c.Log.Level, c.Strict = "/a", "/b", "07", []string{"cpu.shares"}, "debug", true
	c.FailurePolicy.Agent = "fail"
	want := []string{"failurePolicy.agent (the agent uses the new value at once; the runtime gets it at its next connection)", "nri.index", "paths"}
	if d := cmp.Diff(want, KeysNeedingRestart(Default(), c)); d != "" {
		t.Error(d)
	}
}

// TestRestartOfKeys: a key of a section that the agent reads only at its start is itself read only at the start.
func TestRestartOfKeys(t *testing.T) {
	restart := map[string]string{}
	for _, k := range Keys() {
		restart[k.Path] = k.Restart
	}
	for path, want := range map[string]string{
		"mode": "yes", "podspec.kubelet.url": "yes", "nri.index": "yes", "nri.cede": "", "log.level": "", "authorization[].kinds": "",
		"failurePolicy.agent": "the agent uses the new value at once; the runtime gets it at its next connection",
	} {
		if got, known := restart[path]; !known || got != want {
			t.Errorf("%s: restart %q, want %q", path, got, want)
		}
	}
}

// TestAllowedNames: a rule that has the pattern of another rule describes its own values.
func TestAllowedNames(t *testing.T) {
	allowed := map[string]string{}
	for _, k := range Keys() {
		allowed[k.Path] = k.Allowed
	}
	for path, want := range map[string]string{
		"hooks.memoryPolicy.classes[].name": "the name of a class", "rules[].numa.nodes": "NUMA nodes",
		"placement.balloons.balloonTypes[].name": "the name of a balloon type", "pools.reserved": "CPU list",
	} {
		if !strings.Contains(allowed[path], want) {
			t.Errorf("%s: allowed is %q, want it to contain %q", path, allowed[path], want)
		}
	}
}

func resolved(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	text, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSchemaDescribesEveryKey(t *testing.T) {
	s := resolved(t).Schema()
	for _, k := range Keys() {
		p := findSchema(s, k.Path)
		if p == nil || p.Description != k.About {
			t.Errorf("%s: not described in the schema", k.Path)
		}
	}
}

// TestSchemaAgreesWithParse checks the same files with both. The schema may accept more where JSON Schema
// cannot express a rule (reversed ranges, duplicate keys), but it must not refuse what Parse accepts.
func TestSchemaAgreesWithParse(t *testing.T) {
	schema := resolved(t)
	accepts := func(data []byte) bool {
		var v any
		if err := yaml.Unmarshal(data, &v); err != nil {
			t.Fatal(err)
		}
		return schema.Validate(v) == nil
	}
	if !accepts(Print(Default())) {
		t.Error("the schema refuses the printed defaults")
	}
	if !accepts([]byte(header + "hooks:\npools: ~\nlog: {}\n")) {
		t.Error("the schema refuses empty sections")
	}
	for _, name := range []string{
		"unknown-key", "wrong-case", "misplaced-key", "wrong-types", "values", "no-version",
		"other-version", "list-at-top", "interval-too-long",
	} {
		data, err := os.ReadFile(filepath.Join("testdata/bad", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if accepts(data) {
			t.Errorf("the schema accepts %s", name)
		}
	}
}

func TestPrintKeepsEveryKey(t *testing.T) {
	c := Default()
	c.Authorization = []Rule{
		{Kinds: []string{"assigned-cpus"}, Namespaces: []string{"*", "a-?"}, Decision: "cap", MostCPUs: 4},
		{Kinds: []string{"*"}, Namespaces: []string{"kube-system"}, Decision: "allow"},
	}
	c.Rules = []rules.RuleOptions{{
		Name: "r", Match: "pod.name == \"a\"\n  || true", Refuse: "",
		Set: []rules.SettingOptions{{Field: "mount", Key: "/a", Value: "/b", Options: []string{"rw"}, Scope: "container"}},
	}, {Name: "s", Match: "true", Set: []rules.SettingOptions{}, Class: "shared", NUMA: rules.NUMAOptions{Count: 2, Even: true}}}
	c.Placement.Balloons.SchedulingClasses = []class.SchedulingOptions{{
		Name: "fast", Policy: "fifo", Priority: 1, Flags: []string{"reset-on-fork"}, IOClass: "rt", IOPriority: 1,
	}, {Name: "nice", Nice: -1, Flags: []string{}}, {Name: "periodic", Policy: "deadline", Runtime: 2, Deadline: 3, Period: 4, Flags: []string{}}}
	c.Placement.Balloons.LoadClasses = []balloons.LoadOptions{{Name: "heavy", Level: "core", OverloadsLevelInBalloon: true}}
	a := &c.Placement.TopologyAware
	a.SchedulingClasses = c.Placement.Balloons.SchedulingClasses
	a.NamespaceSchedulingClasses = []class.NamespaceOptions{{Namespaces: []string{"a-*"}, SchedulingClass: "fast"}}
	a.PodQoSSchedulingClasses = []class.QoSOptions{{QoSClass: "Guaranteed", SchedulingClass: "nice"}}
	c.Placement.Balloons.CPUClasses = []balloons.CPUClassOptions{{
		Name: "fast", MinFreq: "2000000", MaxFreq: "2.9GHz", FreqGovernor: "performance", EnergyPerformancePreference: "0", DisabledCStates: []string{"C6"},
	}}
	c.Placement.Balloons.IdleCPUClass = "fast"
	c.Placement.Balloons.BalloonTypes = []balloons.TypeOptions{{
		Name: "b", Namespaces: []string{}, AllocatorPriority: "low", MaxCPUs: 2, MemoryTypes: []string{}, PreferCloseToDevices: []string{}, Loads: []string{"heavy"}, ComponentCreation: "all", Components: []balloons.ComponentOptions{{BalloonType: "c"}},
		MatchExpressions: []balloons.ExpressionOptions{{Key: "name", Operator: "In", Values: []string{"a", "b"}}},
	}, {
		Name: "c", Namespaces: []string{}, AllocatorPriority: "high", MemoryTypes: []string{}, PreferCloseToDevices: []string{}, Loads: []string{}, ComponentCreation: "all",
		Components: []balloons.ComponentOptions{}, MatchExpressions: []balloons.ExpressionOptions{},
	}}
	out := string(Print(c))
	for _, k := range Keys() {
		name := k.Path[strings.LastIndexByte(k.Path, '.')+1:]
		if !strings.Contains(out, name+":") {
			t.Errorf("%s is not printed", k.Path)
		}
	}
	// A value that looks like a number must stay a string.
	c.NRI.Index, c.NRI.Name, c.Pools.Shared = "08", "true", "1"
	back, err := Parse("printed", Print(c))
	if err != nil || !reflect.DeepEqual(back, c) {
		t.Errorf("came back as %+v, %v", back, err)
	}
}
