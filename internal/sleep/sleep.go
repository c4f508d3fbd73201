// Package sleep waits for a duration. A context or a channel can end the wait earlier.
package sleep

import (
	"context"
	"time"
)

// For waits for the duration d. It returns false if ctx has ended.
func For(ctx context.Context, d time.Duration) bool {
	UntilWoken(ctx, d, nil)
	return ctx.Err() == nil
}

// UntilWoken waits until d has passed, ctx ends, or the channel woken has a value or is closed. It returns true only if
// the channel ended the wait. woken may be nil.
func UntilWoken(ctx context.Context, d time.Duration, woken <-chan struct{}) bool {
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
