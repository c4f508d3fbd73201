package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/extend/hookserver"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestExample runs the example and asks it as the agent does.
func TestExample(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- serve(ctx, filepath.Join(dir, "s"), filepath.Join(dir, "10-bursts.json")) }()
	s := hookserver.New(hookserver.Options{Directory: dir, Timeout: 5 * time.Second, Log: slog.New(slog.DiscardHandler)})
	defer s.Close()
	for end := time.Now().Add(time.Minute); !s.Asks(lifecycle.CreateContainer); s.Reload() {
		if time.Now().After(end) {
			t.Fatal("it never registered")
		}
	}
	asked := &lifecycle.Event{
		Kind: lifecycle.CreateContainer, Pod: &lifecycle.Pod{Labels: map[string]string{label: "yes"}},
		Container: &lifecycle.Container{
			Name: "app", Env: []string{"A=1"}, OOMScoreAdj: lifecycle.Some[int64](900),
			Resources: lifecycle.Resources{CPU: lifecycle.CPU{Shares: lifecycle.Some[uint64](512), Quota: lifecycle.Some[int64](50000)}},
		},
	}
	for kind, want := range map[lifecycle.Kind]string{
		lifecycle.CreateContainer: "[cpu.quota=-1 cpu.shares=256 env=yes]", lifecycle.UpdateContainer: "[cpu.quota=-1]",
	} {
		asked.Kind = kind
		out, err := s.Ask(ctx, asked)
		if err != nil || len(out.Problems) > 0 {
			t.Fatal(err, out.Problems)
		}
		var got []string
		for _, v := range out.Values {
			got = append(got, fmt.Sprintf("%s=%s", v.Field, v))
		}
		if d := cmp.Diff(want, fmt.Sprint(got)); d != "" {
			t.Errorf("%s: %s", kind, d)
		}
	}
	asked.Pod.Labels = nil
	if out, err := s.Ask(ctx, asked); err != nil || !out.Empty() {
		t.Errorf("a pod that did not ask: %+v, %v", out, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := register(filepath.Join(dir, "missing", "x.json"), "/s"); !os.IsNotExist(err) {
		t.Error(err)
	}
}
