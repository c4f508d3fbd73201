// Package sleep waits for a duration that a context can cut short.
package sleep

import (
	"context"
	"time"
)

// For waits for d. It returns false if ctx ended before that.
func For(ctx context.Context, d time.Duration) bool {
	Unless(ctx, d, nil)
	return ctx.Err() == nil
}

// Unless waits for d, at most until ctx ends. It returns true if a value on woken ended the wait. A nil channel
// never ends it.
func Unless(ctx context.Context, d time.Duration, woken <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-woken:
		return true
	}
	return false
}

// Wake sends on a channel of capacity 1 without blocking. It does nothing if a value is
// already in the channel.
func Wake(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
