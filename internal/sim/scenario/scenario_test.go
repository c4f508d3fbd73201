package scenario

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/test/clock"
)

const small = `
name: small
about: A pod.
node: {cpus: 2c}
steps:
  - name: it runs
    run:
      - pod: {namespace: a, name: b, qos: Burstable}
        containers: [{name: c, resources: {shares: 512}}]
    want:
      a/b/c: {cpus: "", shares: 512, problems: []}
`

func TestParse(t *testing.T) {
	s, err := Parse([]byte(small))
	if err != nil {
		t.Fatal(err)
	}
	if s.Node.Cgroup != "v2" || s.Node.Driver != "cgroupfs" {
		t.Errorf("defaults: %+v", s.Node)
	}
	w := s.Steps[0].Want["a/b/c"]
	if w.CPUs == nil || *w.CPUs != "" || w.Mems != nil || *w.Shares != 512 || w.Problems == nil || len(*w.Problems) != 0 {
		t.Errorf("absent and empty differ: %+v", w)
	}
}

func TestParseErrors(t *testing.T) {
	for name, tt := range map[string]struct{ from, to, want string }{
		"machine":        {"cpus: ", "cpus: 4z x ", `node: cpus: machine "4z`},
		"unknown key":    {"about:", "abuot:", `unknown key "abuot"; nearest valid key "`},
		"nested key":     {"shares: 512}}]", "share: 512}}]", `unknown key "steps[0].run[0].containers[0].resources.share"; nearest valid key "`},
		"wrong case":     {"qos:", "QoS:", `unknown key "steps[0].run[0].pod.QoS"; nearest valid key "`},
		"key twice":      {"name: small", "name: small\nname: big", "already set"},
		"wrong type":     {"shares: 512}}]", "shares: many}}]", "shares"},
		"no name":        {"name: small", "name: ''", "name: the key is missing"},
		"no steps":       {small[strings.Index(small, "steps:"):], "steps: []", "steps: the scenario has no steps"},
		"no CPUs":        {"{cpus: 2c}", "{}", "cpus is missing"},
		"cgroup":         {"{cpus: 2c}", "{cpus: 2c, cgroup: v3}", `cgroup: is "v3", want one of [v1 v2]`},
		"driver":         {"{cpus: 2c}", "{cpus: 2c, driver: x}", `driver: is "x", want one of`},
		"qos":            {"Burstable", "Best", `qos: is "Best", want one of`},
		"two actions":    {"    want:", "    restart: agent\n    want:", "more than one action"},
		"restart":        {"    run:", "    restart: kubelet\n    run:", `restart: is "kubelet", want one of`},
		"ref":            {"a/b/c: {", "a//c: {", "write namespace/pod"},
		"short ref":      {"a/b/c: {", "a: {", "write namespace/pod"},
		"pod's env":      {"a/b/c: {", "a/b: {env: {A: b}, ", "for a pod only cpus"},
		"state":          {"{cpus: \"\",", "{state: gone, cpus: \"\",", "want one of [created running stopped]"},
		"container name": {"{name: c,", "{name: '',", "has no name"},
		"pod name":       {"name: b,", "name: '',", "write namespace/pod"},
		"not YAML":       {"steps:", "\tsteps:", "yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(small, tt.from, tt.to, 1)
			if text == small {
				t.Fatal("the test changes nothing")
			}
			_, err := Parse([]byte(text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want it to contain %q", err, tt.want)
			}
		})
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	_, err := Parse([]byte("node: {cgroup: v9}\nsteps: [{stop: [x]}, {wantRejected: refused}]"))
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"name: the key is missing", "cpus is missing", "v9", "steps[0]", "steps[1]", "no action that could be rejected"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not contain %q", err, want)
		}
	}
}

func TestRef(t *testing.T) {
	r := PodRef("ns", "pod").In("c")
	if r != "ns/pod/c" || r.Pod() != "ns/pod" || r.Container() != "c" || r.Pod().Container() != "" {
		t.Error(r, r.Pod(), r.Container())
	}
	if a, b, c := r.Names(); a != "ns" || b != "pod" || c != "c" {
		t.Error(a, b, c)
	}
}

func TestRepositoryScenariosLoad(t *testing.T) {
	files, err := filepath.Glob("../../../test/scenarios/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		if _, err := Load(f); err != nil {
			t.Error(err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(small)
	f.Add(small + strings.Repeat("# x\n", 20_000))
	f.Add(strings.Repeat("{", 9_000))
	f.Fuzz(func(t *testing.T, text string) {
		defer clock.Watch(t, len(text))()
		s, err := Parse([]byte(text))
		if err == nil && (s.Name == "" || len(s.Steps) == 0) {
			t.Errorf("accepted %q", text)
		}
	})
}
