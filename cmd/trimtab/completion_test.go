package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestCompleteValues completes flags that have few values, where the shell would otherwise offer files.
func TestCompleteValues(t *testing.T) {
	for line, want := range map[string]string{
		"agent --attach":                "nri cri bypass auto hooks",
		"agent --log-level":             "debug info warn error",
		"agent --log-format":            "text json",
		"agent --backend-runtime-mode":  "Containerd",
		"status --class":                "system dedicated shared reclaimed none",
		"status --wait":                 "ready",
		"events --output":               "table json yaml",
		"status --socket missing.s -n":  "",
		"explain --socket missing.s -n": "",
	} {
		var out bytes.Buffer
		root, _ := newRoot()
		root.SetOut(&out)
		root.SetErr(&bytes.Buffer{})
		root.SetArgs(append(append([]string{"__complete"}, strings.Fields(line)...), ""))
		if err := root.Execute(); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		values, noFiles := strings.CutSuffix(strings.Join(strings.Fields(out.String()), " "), ":4")
		if got := strings.TrimSpace(values); got != want || !noFiles {
			t.Errorf("%s: completed by %q, want %q and no files", line, out.String(), want)
		}
	}
}
