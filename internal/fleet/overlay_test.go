package fleet_test

import (
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/fleet"
)

const head = "apiVersion: trimtab.io/v1alpha1\nkind: Config\n"

// file is a node's file with all defaults filled in, as the agent prints it.
func file(t testing.TB, body string) string {
	t.Helper()
	c, err := config.Parse("file", []byte(head+body))
	if err != nil {
		t.Fatal(err)
	}
	return string(config.Print(c))
}

// TestOverlay: a removed key gets the value of the node's file, and the node's own layer stays above the others.
func TestOverlay(t *testing.T) {
	own := file(t, "pools: {reserved: \"0\", system: \"1\"}\nlog: {level: warn}\n")
	before := fleet.Layers{
		Cluster: head + "pools: {reserved: \"2\"}\nlog: {level: debug}\n",
		Group:   head + "strict: true\nfailurePolicy: {hooks: [rdt]}\n",
		Node:    head + "pools: {system: \"3\"}\n",
	}
	after := before
	after.Cluster = head + "log: {level: info}\nplacement: {policy: pools}\n"
	text, err := fleet.Overlay(own, before, after)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"reserved: \"0\"", "system: \"3\"", "level: info", "strict: true", "policy: pools"} {
		if !strings.Contains(text, want) {
			t.Errorf("the layer lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "resyncSeconds") {
		t.Errorf("the layer has keys that nobody set:\n%s", text)
	}
}

func TestOverlayRefuses(t *testing.T) {
	own := file(t, "")
	if _, err := fleet.Overlay(own, fleet.Layers{}, fleet.Layers{Cluster: head + "pols: {}\n"}); err == nil || !strings.Contains(err.Error(), "unknown key") {
		t.Errorf("an unknown key: %v", err)
	}
	if _, err := fleet.Overlay("unknownKey: 1\n"+own, fleet.Layers{}, fleet.Layers{Cluster: head}); err == nil {
		t.Error("a file that this version does not understand is taken")
	}
}

// TestOverlayStandsForAll: for any layers before and after, the node gets the same configuration from the
// overlay as from the change itself.
func TestOverlayStandsForAll(t *testing.T) {
	parts := []string{
		"strict: true\n", "strict: false\n", "log: {level: debug}\n", "log: {level: warn}\n", "pools: {reserved: \"0\"}\n",
		"pools: {reserved: \"1\", system: \"2\"}\n", "pools: {system: \"3\"}\n", "failurePolicy: {hooks: [cpuset, batch]}\n",
		"failurePolicy: {hooks: [rdt]}\n", "hooks: {cpuset: {enabled: false}}\n", "hooks: {cpuset: }\n", "placement: {policy: pools}\n", "dialects: []\n",
	}
	rapid.Check(t, func(t *rapid.T) {
		document := func(name string) string {
			if rapid.Bool().Draw(t, "no "+name) {
				return ""
			}
			text, seen := head, map[string]bool{}
			for _, p := range rapid.SliceOfN(rapid.SampledFrom(parts), 0, 4).Draw(t, name) {
				if key, _, _ := strings.Cut(p, ":"); !seen[key] {
					seen[key] = true
					text += p
				}
			}
			return text
		}
		own, err := config.Parse("file", []byte(head+strings.TrimPrefix(document("file"), head)))
		if err != nil {
			t.Fatal(err)
		}
		printed := string(config.Print(own))
		before := fleet.Layers{Cluster: document("cluster"), Group: document("group"), Node: document("node")}
		after := before
		if rapid.Bool().Draw(t, "the group's") {
			after.Group = document("new group")
		} else {
			after.Cluster = document("new cluster")
		}
		text, err := fleet.Overlay(printed, before, after)
		if err != nil {
			t.Fatal(err)
		}
		staged := before
		staged.Node = text
		got, err := staged.Effective(printed)
		want, wrong := after.Effective(printed)
		if err != nil || wrong != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("staged %v (%v)\nwant %v (%v)", got, err, want, wrong)
		}
		// Nothing changes when the target is written below it.
		final := after
		final.Node = text
		if got, err := final.Effective(printed); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("at the end %v (%v)\nwant %v", got, err, want)
		}
	})
}
