package config

import (
	"errors"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRemarks names keys without effect beside others, and none that counts.
func TestRemarks(t *testing.T) {
	for name, tt := range map[string]struct {
		file string
		want []string
	}{
		"policy none": {"placement:\n  reclaim: leftover\n  balloons: {pinCPU: false}\n", []string{
			"f:4: placement.reclaim: has no effect with placement.policy: none; set placement.policy: pools, or remove the key",
			"f:5: placement.balloons: has no effect with placement.policy: none; set placement.policy: balloons, or remove the key",
		}},
		"a key for another policy": {"placement: {policy: balloons, spread: true}\n", []string{
			"f:3: placement.spread: has no effect with placement.policy: balloons; set placement.policy: pools, or remove the key",
		}},
		"no hook": {"placement: {policy: pools}\nhooks: {cpuset: {enabled: false}}\n", []string{
			"f:3: placement.policy: has no effect with hooks.cpuset.enabled: false; enable that hook, or remove the key",
		}},
		"a former name first": {"authorisation: []\nplacement: {lendLSR: true}\n", []string{
			`f:3: authorisation: is called "authorization" now; the former name is still read`,
			"f:4: placement.lendLSR: has no effect with placement.policy: none; set placement.policy: pools, or remove the key",
		}},
		"no refusals": {"topologyManager: {evictAfter: 3}\ncluster: {enabled: true}\n", []string{
			"f:3: topologyManager.evictAfter: has no effect with topologyManager.refusal: report; set topologyManager.refusal: fail, or remove the key",
		}},
		"no API server": {"topologyManager: {evictAfter: 3, refusal: fail}\n", []string{
			"f:3: topologyManager.evictAfter: has no effect with cluster.enabled: false; set cluster.enabled: true, or remove the key",
		}},
		"evictions":      {"topologyManager: {evictAfter: 3, refusal: fail}\ncluster: {enabled: true}\n", nil},
		"all counts":     {"placement: {policy: pools, reclaim: leftover}\n", nil},
		"the default":    {"placement: {reclaim: together}\n", nil},
		"an invalid key": {"placement: {reclaim: leftover, policy: [1]}\n", nil},
		"no YAML":        {"placement: {\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, p := range Remarks("f", []byte(head+tt.file)) {
				got = append(got, p.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestOnlyTags checks that each policy in the tags exists, and that a tag is on a key of placement.
func TestOnlyTags(t *testing.T) {
	policies := map[string]bool{}
	for _, p := range keyRules()["placement.policy"].choices {
		policies[p] = true
	}
	tags := 0
	visitFields(reflect.ValueOf(Default()), "", func(path string, f reflect.StructField, owner reflect.Type, _ reflect.Value) {
		only, has := f.Tag.Lookup("only")
		if !has {
			return
		}
		if tags++; !policies[only] || owner.Name() != "Placement" {
			t.Errorf("%s: the tag only:%q names no placement.policy, or is on another section", path, only)
		}
	})
	if tags < 8 {
		t.Errorf("%d tags", tags)
	}
}

// TestLocated finds the line of a key in an error, or of the nearest section above.
func TestLocated(t *testing.T) {
	const file = head + "placement:\n  policy: balloons\npools:\n  reserved: \"99\"\n"
	for err, want := range map[string]string{
		"pools.reserved: CPU 99":            "f:6: pools.reserved: CPU 99",
		"placement.balloons.types[1]: none": "f:3: placement.balloons.types[1]: none",
		"hooks.rdt: no":                     "f: hooks.rdt: no",
		"nothing":                           "f: nothing",
	} {
		if got := ProblemOf("f", []byte(file), errors.New(err)).String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
