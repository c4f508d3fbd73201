package main

import (
	"bytes"
	"context"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// shownText is what a command has printed so far.
type shownText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *shownText) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *shownText) has(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), text)
}

// TestHangup: a demo whose terminal is closed removes its files, as an interrupted one does.
func TestHangup(t *testing.T) {
	dir, err := os.MkdirTemp("", "hup") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("TMPDIR", dir)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // so that the signal is not ignored if nohup started the test
	defer signal.Stop(hangups)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, done := &shownText{}, make(chan int, 1)
	go func() {
		done <- run(ctx, invocation{name: "trimtab", args: []string{"demo", "--serve", "--step", "1", "--http", "none"}, in: strings.NewReader(""), out: out, err: out})
	}()
	wait := time.NewTicker(10 * time.Millisecond)
	defer wait.Stop()
	for !out.has("Interrupt (Ctrl-C) to stop it.") {
		select {
		case code := <-done:
			t.Fatalf("it ended with %d: %s", code, out.text.String())
		case <-wait.C:
		}
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if code := <-done; code != exitOK || ctx.Err() != nil {
		t.Errorf("it ended with %d, %v", code, ctx.Err())
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}
