package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// TestMan holds docs/man to what the commands say of themselves; with -update,
// as go generate calls it, it writes the pages. What makes them is in this test
// and so not in the program.
func TestMan(t *testing.T) {
	const dir = "../../docs/man"
	want := map[string]string{}
	root, _ := newRoot()
	root.DisableAutoGenTag = true
	root.CompletionOptions.DisableDefaultCmd = true // `trimtab help completion` says it
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.IsAdditionalHelpTopicCommand() && cmd.Name() != "exit-codes" || cmd.Name() == "help" {
			return
		}
		var b bytes.Buffer
		// A page changes with its command, not with the day.
		when := time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
		h := &doc.GenManHeader{Title: strings.ToUpper(name), Section: "1", Date: &when, Source: "Trimtab", Manual: "Trimtab"}
		if err := doc.GenMan(cmd, h, &b); err != nil {
			t.Fatal(err)
		}
		want[name+".1"] = b.String()
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	visit(root)
	if *update {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range want {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	have := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		have[e.Name()] = string(b)
	}
	if d := cmp.Diff(want, have); d != "" {
		t.Errorf("docs/man is stale, run go generate ./... (-want +have):\n%s", d)
	}
}
