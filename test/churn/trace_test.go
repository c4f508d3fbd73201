package churn

import (
	"bytes"
	"slices"
	"strings"
	"sync"
)

// trace keeps the last lines of a log, to explain a failure.
type trace struct {
	mu    sync.Mutex
	lines []string
}

const traced = 4000

func (t *trace) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, string(bytes.TrimSpace(p)))
	if len(t.lines) > 2*traced {
		t.lines = slices.Clone(t.lines[traced:])
	}
	return len(p), nil
}

// about returns the last lines that contain one of the texts.
func (t *trace) about(texts ...string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []string
	for _, l := range t.lines {
		if slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(l, s) }) {
			out = append(out, l)
		}
	}
	return strings.Join(out[max(0, len(out)-60):], "\n")
}
