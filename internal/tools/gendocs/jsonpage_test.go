package main

import (
	"flag"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var addFields = flag.Bool("update", false, "add new fields to testdata/json-fields.txt")

// TestOldFieldsStay compares the fields of the answers with the list of all that were ever there. A program may read
// any of them, so a line leaves the list only together with the version of the documents.
func TestOldFieldsStay(t *testing.T) {
	const file = "testdata/json-fields.txt"
	text, err := os.ReadFile(file)
	if err != nil && !*addFields {
		t.Fatal(err)
	}
	old := strings.Split(strings.TrimSpace(string(text)), "\n")
	var now []string
	for _, a := range answers() {
		for _, f := range fieldsOf(reflect.TypeOf(a.value), "", nil) {
			now = append(now, a.command+": "+f)
		}
	}
	for _, f := range old {
		if f != "" && !slices.Contains(now, f) {
			t.Errorf("a field is missing, or has another type: %s", f)
		}
	}
	if *addFields {
		if err := os.WriteFile(file, []byte(strings.Join(now, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, f := range now {
		if !slices.Contains(old, f) {
			t.Errorf("a new field is not in %s, run go test ./internal/tools/gendocs -run OldFields -update: %s", file, f)
		}
	}
}
