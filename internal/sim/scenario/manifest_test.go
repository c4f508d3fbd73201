package scenario

import (
	"strings"
	"testing"
)

const withManifest = `name: m
about: a manifest
node: {cpus: 2c}
steps:
  - run:
      - manifest: {kind: Pod, metadata: {name: b, namespace: a}, spec: {containers: [{name: c, resources: {limits: {cpu: 500m}}}], initContainers: [{name: i}]}}
`

// TestManifest: a Pod is converted as the kubelet converts it.
func TestManifest(t *testing.T) {
	s, err := Parse([]byte(withManifest))
	if err != nil {
		t.Fatal(err)
	}
	r := s.Steps[0].Run[0]
	if r.Pod.Name != "b" || r.Pod.Namespace != "a" || r.Pod.QoS != "Burstable" || len(r.Containers) != 1 || r.Containers[0].Name != "c" {
		t.Errorf("%+v", r)
	}
	if got := *r.Containers[0].Resources.Quota; got != 50000 {
		t.Errorf("quota %d", got)
	}
	if spec := string(r.Pod.Spec); !strings.Contains(spec, `"requests":{"cpu":"500m"}`) {
		t.Errorf("the kubelet reports %s", spec)
	}
}

func TestManifestErrors(t *testing.T) {
	for _, tt := range []struct{ from, to, want string }{
		{"kind: Pod", "kind: Service", "steps[0].run[0].manifest: the manifest has no pod or workload, only 1 Service"},
		{"kind: Pod,", "", "has no kind"},
		{"cpu: 500m", "cpu: lots", `"lots"`},
		{"- manifest:", "- pod: {name: x}\n        manifest:", "pod and containers come from the manifest"},
		{"manifest: {", "manifset: {", `unknown key "steps[0].run[0].manifset"; nearest valid key "`},
		{"{kind: Pod", "{kind: List, items: [{kind: Pod, metadata: {name: n1}, spec: {}}, {kind: Pod, metadata: {name: n2}, spec: {}}]} #", "the manifest must be exactly one Pod"},
		{"kind: Pod, metadata", "kind: Job, metadata", "manifest"},
	} {
		text := strings.Replace(withManifest, tt.from, tt.to, 1)
		if text == withManifest {
			t.Fatalf("%q changes nothing", tt.from)
		}
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q gives %v, want %q", tt.to, err, tt.want)
		}
	}
}
