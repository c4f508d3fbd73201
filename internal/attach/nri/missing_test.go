package nri

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestMissingSocketWarns: the log has a warning about a missing socket at once and after every five minutes, not at
// every attempt. It says what to do with containerd 1.7.
func TestMissingSocketWarns(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "nri.sock")
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		a := New(Options{Socket: socket, Handler: &recorder{}, Log: slog.New(slog.NewTextHandler(&log, nil)), Polls: true})
		ctx, cancel := context.WithTimeout(t.Context(), 11*time.Minute)
		defer cancel()
		if err := a.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), `level=WARN msg="no NRI socket`); n != 3 {
			t.Errorf("%d warnings in 11 minutes:\n%s", n, &log)
		}
		for _, want := range []string{"version = 2", "[plugins.'io.containerd.nri.v1.nri']", "disable = false", "trimtab doctor", socket} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the warning lacks %q:\n%s", want, &log)
			}
		}
	})
}
