package kube

import (
	"context"
	"time"
)

// Wait waits for d; false where ctx ended before.
func Wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Stamp is a time as objects of the API server have it.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
