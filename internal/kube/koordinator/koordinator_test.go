package koordinator_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/kube/koordinator"
)

func nodeSLO(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestNodeSLO(t *testing.T) {
	l, ok, unknown := koordinator.NodeSLOLayer(nodeSLO(t, `
apiVersion: slo.koordinator.sh/v1alpha1
kind: NodeSLO
metadata: {name: n1, resourceVersion: "7"}
spec:
  resourceQOSStrategy:
    policies: {cpuPolicy: groupIdentity}
    lsrClass:
      cpuQOS: {enable: true, groupIdentity: 1}
      resctrlQOS: {enable: true, catRangeEndPercent: 80}
    lsClass:
      cpuQOS: {enable: false, groupIdentity: 2}
      memoryQOS: {enable: true}
    beClass:
      cpuQOS: {enable: true}
      resctrlQOS: {enable: true, mbaPercent: 50}
      networkQOS: {enable: false}
  resourceUsedThresholdWithBE: {enable: false, cpuSuppressThresholdPercent: 65}
  cpuBurstStrategy: {policy: auto}
  systemStrategy: {}
  hostApplications: [{name: nginx}]
`))
	if !ok {
		t.Fatal("nothing is read")
	}
	c, _, err := config.Merge(l)
	if err != nil {
		t.Fatalf("%v of\n%s", err, l.Data)
	}
	g, r := c.Hooks.GroupIdentity, c.Hooks.RDT
	if !g.Enabled || g.LSR != 1 || g.LS != 0 || g.BE != -1 || c.Hooks.CoreSched.Enabled {
		t.Errorf("identities %+v", g)
	}
	if !r.Enabled || r.LSRCache != "0-80" || r.BECache != "0-30" || r.BEBandwidth != 50 || r.LSCache != "0-100" {
		t.Errorf("shares %+v", r)
	}
	want := []string{"NodeSLO n1: spec.cpuBurstStrategy: similar in Trimtab: hooks.burst", "NodeSLO n1: spec.hostApplications", "NodeSLO n1: spec.resourceQOSStrategy.lsClass.memoryQOS"}
	if !slices.Equal(unknown, want) {
		t.Errorf("not understood: %q, want %q", unknown, want)
	}
}

func TestNodeSLOOfAnotherVersion(t *testing.T) {
	_, ok, unknown := koordinator.NodeSLOLayer(nodeSLO(t, "apiVersion: slo.koordinator.sh/v1beta1\nkind: NodeSLO\nmetadata: {name: n1}\n"))
	if ok || len(unknown) != 1 || !strings.Contains(unknown[0], "v1beta1") {
		t.Errorf("%t, %q", ok, unknown)
	}
}

func TestNodeSLOWithoutName(t *testing.T) {
	_, _, unknown := koordinator.NodeSLOLayer(nodeSLO(t, `
apiVersion: slo.koordinator.sh/v1alpha1
kind: NodeSLO
spec:
  resourceQOSStrategy: {beClass: {blkioQOS: {enable: true}}}
  resourceUsedThresholdWithBE: {enable: true}
`))
	want := []string{"NodeSLO: spec.resourceQOSStrategy.beClass.blkioQOS: similar in Trimtab: hooks.blockIO", "NodeSLO: spec.resourceUsedThresholdWithBE: similar in Trimtab: placement.reclaim: leftover"}
	if !slices.Equal(unknown, want) {
		t.Errorf("not understood: %q, want %q", unknown, want)
	}
}

func TestNodeSLOWithoutNumbers(t *testing.T) {
	l, ok, _ := koordinator.NodeSLOLayer(nodeSLO(t, "apiVersion: slo.koordinator.sh/v1alpha1\nmetadata: {name: n1}\nspec: {resourceQOSStrategy: {beClass: {cpuQOS: {enable: true, groupIdentity: x}}}}\n"))
	if _, _, err := config.Merge(l); !ok || err == nil || !strings.Contains(err.Error(), "hooks.groupIdentity.be") {
		t.Errorf("%t, %v", ok, err)
	}
}

func TestNode(t *testing.T) {
	const p = "node.koordinator.sh/"
	for _, c := range []struct {
		name                string
		labels, annotations map[string]string
		reserved, system    string
		ratio               string // "" for disabled
		unknown             int
	}{
		{"nothing", nil, nil, "", "", "", 0},
		{"a ratio", nil, map[string]string{p + "cpu-normalization-ratio": "1.20"}, "", "", "1.20", 0},
		{"a ratio that is switched off", map[string]string{p + "cpu-normalization-enabled": "false"}, map[string]string{p + "cpu-normalization-ratio": "1.20"}, "", "", "", 0},
		{"no ratio", nil, map[string]string{p + "cpu-normalization-ratio": "-1"}, "", "", "", 0},
		{"a bad ratio", nil, map[string]string{p + "cpu-normalization-ratio": "fast"}, "", "", "", 1},
		{"reserved CPUs", nil, map[string]string{p + "reservation": `{"reservedCPUs":"0-1"}`}, "0-1", "", "", 0},
		{"a number of CPUs", nil, map[string]string{p + "reservation": `{"resources":{"cpu":"2"}}`}, "", "", "", 1},
		{"no JSON", nil, map[string]string{p + "reservation": `{`}, "", "", "", 1},
		{"CPUs of the system", nil, map[string]string{p + "system-qos-resource": `{"cpuset":"2-3"}`, p + "reservation": `{"reservedCPUs":"0"}`}, "0,2-3", "2-3", "", 0},
		{"that others may use", nil, map[string]string{p + "system-qos-resource": `{"cpuset":"2-3","cpusetExclusive":false}`}, "", "2-3", "", 0},
		{"what has no key", nil, map[string]string{p + "network-bandwidth": "1G"}, "", "", "", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, ok, unknown := koordinator.NodeLayer("n1", c.labels, c.annotations)
			got := config.Default()
			if ok {
				var err error
				if got, _, err = config.Merge(l); err != nil {
					t.Fatal(err)
				}
			}
			n := got.Hooks.Normalization
			if got.Pools.Reserved != c.reserved || got.Pools.System != c.system || n.Enabled != (c.ratio != "") || n.Enabled && n.Ratio != c.ratio || len(unknown) != c.unknown {
				t.Errorf("pools %+v, normalization %+v, not understood %q", got.Pools, n, unknown)
			}
		})
	}
}
