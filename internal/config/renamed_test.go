package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const head = "apiVersion: trimtab.io/v1alpha1\nkind: Config\n"

// TestFormerName reads a key by its former name, alone and below a layer with the new name.
func TestFormerName(t *testing.T) {
	const rule = "[{kinds: [gpu], namespaces: [shop], decision: allow}]\n"
	was, now := head+"authorisation: "+rule, head+"authorization: "+rule
	a, err := Parse("a", []byte(was))
	if err != nil {
		t.Fatal(err)
	}
	b, err := Parse("b", []byte(now))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(a, b); diff != "" || len(a.Authorization) != 1 {
		t.Errorf("%+v by the former name, %s", a.Authorization, diff)
	}
	if printed := string(Print(a)); !strings.Contains(printed, "\nauthorization:") || strings.Contains(printed, "authorisation:") {
		t.Errorf("it is printed as %s", printed)
	}
	want := `a:3: authorisation: is called "authorization" now; the former name is still read`
	if got := KeyWarnings("a", []byte(was)); len(got) != 1 || got[0].String() != want {
		t.Errorf("%v, want %s", got, want)
	}
	if got := KeyWarnings("b", []byte(now)); got != nil {
		t.Errorf("%v of the new name", got)
	}
	merged, from, err := Merge(Layer{Name: "old", Data: []byte(was)}, Layer{Name: "new", Data: []byte(head + "authorization: []\n")})
	if err != nil || len(merged.Authorization) != 0 || from.Of("authorization") != "new" {
		t.Errorf("%v of %q, %v", merged.Authorization, from.Of("authorization"), err)
	}
	if _, err := Parse("both", []byte(was+"authorization: []\n")); err == nil || !strings.Contains(err.Error(), "both:4: authorization: duplicate key, first given on line 3") {
		t.Errorf("both names: %v", err)
	}
}

// TestFormerNameJSON renames a key in a JSON document, and changes nothing else.
func TestFormerNameJSON(t *testing.T) {
	for in, want := range map[string]string{
		`{"authorisation":[1],"pools":{}}`:      `{"authorization":[1],"pools":{}}`,
		`{"authorization":[1]}`:                 `{"authorization":[1]}`,
		`{"authorisation":1,"authorization":2}`: `{"authorisation":1,"authorization":2}`,
		`[]`:                                    `[]`,
		``:                                      ``,
	} {
		if got := string(RenameJSON([]byte(in))); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}
