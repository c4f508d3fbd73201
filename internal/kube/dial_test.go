package kube

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestRedials: the first connection is made at once. If a server disconnects a thousand agents, they
// connect again over the whole time, and not at the same moment.
func TestRedials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const agents, spread = 1000, maxRedialWait
		var seconds [5]int
		for range agents {
			begun := time.Now()
			var after time.Duration
			dial := spreadRedials(func(context.Context, string, string) (net.Conn, error) {
				after = time.Since(begun)
				return nil, errors.New("refused")
			}, spread)
			if _, err := dial(t.Context(), "tcp", "a:1"); err == nil || after != 0 {
				t.Fatalf("the first after %v: %v", after, err)
			}
			begun = time.Now()
			if _, err := dial(t.Context(), "tcp", "a:1"); err == nil || after >= spread {
				t.Fatalf("the second after %v: %v", after, err)
			}
			seconds[after/time.Second]++
		}
		for i, n := range seconds {
			if n < agents/10 || n > agents*3/10 {
				t.Errorf("second %d: %d of %d connections", i, n, agents)
			}
		}
	})
}

// TestRedialEnds: a cancelled request does not wait.
func TestRedialEnds(t *testing.T) {
	dials := 0
	count := func(context.Context, string, string) (net.Conn, error) { dials++; return nil, errors.New("refused") }
	ctx, cancel := context.WithCancel(t.Context())
	dial := spreadRedials(count, time.Hour)
	_, _ = dial(ctx, "tcp", "a:1")
	cancel()
	if _, err := dial(ctx, "tcp", "a:1"); !errors.Is(err, context.Canceled) || dials != 1 {
		t.Errorf("%d connections, %v", dials, err)
	}
}
