package sleep_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trimtab/trimtab/internal/sleep"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if !sleep.For(t.Context(), time.Hour) || time.Since(begun) != time.Hour {
			t.Errorf("waited %s for an hour", time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun = time.Now()
		if sleep.For(ctx, time.Hour) || time.Since(begun) != time.Minute {
			t.Errorf("waited %s though the context ended after a minute", time.Since(begun))
		}
		if sleep.For(ctx, 0) {
			t.Error("waited no time after the context ended: want false")
		}
	})
}

func TestUntilWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		woken := make(chan struct{}, 1)
		woken <- struct{}{}
		begun := time.Now()
		if !sleep.UntilWoken(t.Context(), time.Hour, woken) || time.Since(begun) != 0 {
			t.Errorf("woken after %s, want at once", time.Since(begun))
		}
		if sleep.UntilWoken(t.Context(), time.Hour, woken) || time.Since(begun) != time.Hour {
			t.Errorf("not woken: waited %s for an hour", time.Since(begun))
		}
	})
}
