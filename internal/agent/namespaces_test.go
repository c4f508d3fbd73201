package agent

import (
	"fmt"
	"testing"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/kube/namespaces"
)

// TestSelected: a rule with a selector applies to namespaces whose names and labels match, and to none with
// unknown labels.
func TestSelected(t *testing.T) {
	known := namespaces.Labels{"db-a": {"team": "db"}, "db-b": {"team": "db", "tier": "test"}, "web": {"team": "web"}, "plain": nil}
	for text, want := range map[string]string{
		"":                   "[*]",
		"team=db":            "[db-a db-b]",
		"team=db,tier!=test": "[db-a]",
		"!team":              "[plain]",
		"team in (web)":      "[web]",
		"team=none":          "[]",
	} {
		r := config.Rule{Namespaces: []string{"*"}, NamespaceSelector: text}
		if got := fmt.Sprint(selectedNamespaces(r, known)); got != want {
			t.Errorf("%q selects %s, want %s", text, got, want)
		}
	}
	narrow := config.Rule{Namespaces: []string{"*-b"}, NamespaceSelector: "team=db"}
	if got := fmt.Sprint(selectedNamespaces(narrow, known)); got != "[db-b]" {
		t.Errorf("of *-b %s", got)
	}
	store := &namespaces.Store{}
	store.Load([]byte(`{"namespaces":{"db-a":{"team":"db"}},"mac":"x"}`))
	rules := rulesOf([]config.Rule{{Kinds: []string{"class/dedicated"}, Namespaces: []string{"*"}, NamespaceSelector: "team=db", Decision: "refuse"}}, store.Labels())
	for namespace, want := range map[string]string{"db-a": "rule 1", "never-read": "default"} {
		if got := rules.For(intent.Kind("class/dedicated"), namespace).Name; got != want {
			t.Errorf("%s: %s decides, want %s", namespace, got, want)
		}
	}
}
