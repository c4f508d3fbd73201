package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestPicture: the picture in README.md equals the one of the demo.
func TestPicture(t *testing.T) {
	file := filepath.Join(t.TempDir(), "demo.svg")
	var out, problems bytes.Buffer
	if code := run(t.Context(), invocation{name: "trimtab", args: []string{"demo", "--step", "4", "--svg", file}, out: &out, err: &problems}); code != 0 {
		t.Fatalf("exit code %d: %s", code, problems.String())
	}
	if out.Len() > 0 {
		t.Errorf("beside the picture it printed %q", out.String())
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const shown = "../../docs/images/demo.svg"
	if *update {
		if err := os.WriteFile(shown, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(shown)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is stale (%v): run go generate ./...", shown, err)
	}
}
