package main

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDescriptionsAreFresh(t *testing.T) {
	want, err := descriptionsSource("../../config")
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../../config/descriptions.go")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(have)); d != "" {
		t.Errorf("internal/config/descriptions.go is out of date, run go generate ./... (-want +have):\n%s", d)
	}
}

func TestDescriptionsSourceNamesItsFile(t *testing.T) {
	if _, err := descriptionsSource("nowhere.go"); err == nil {
		t.Error("no error for a missing file")
	}
}
