package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestLogFormat: a change of log.format applies to every existing logger.
func TestLogFormat(t *testing.T) {
	var out bytes.Buffer
	f := &logFormat{}
	log := newLog(f, slog.LevelInfo, &out).With("a", 1).WithGroup("g")
	for _, format := range []string{"text", "json", "text"} {
		f.set(format)
		log.Debug("no")
		log.Info("yes", "b", 2)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d lines: %q", len(lines), lines)
	}
	for i, want := range []string{"msg=yes a=1 g.b=2", `"msg":"yes","a":1,"g":{"b":2}`, "msg=yes a=1 g.b=2"} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %d is %s, want %s", i, lines[i], want)
		}
	}
}
