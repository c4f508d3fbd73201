package vm

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// hostKHz returns the rate of the host's time stamp counter in kHz, or 0 if the rate cannot be measured. The tests give
// this rate to the guest's kernel with the parameter tsc_early_khz (since Linux 4.20). Otherwise the guest measures the
// rate itself. On a busy host this measurement can be wrong by a factor of four. The clock would then be wrong in every
// guest that is restored from the snapshot.
var hostKHz = sync.OnceValue(func() uint64 {
	from, begun := readTick()
	if from == 0 {
		return 0
	}
	<-time.After(100 * time.Millisecond)
	to, ended := readTick()
	return uint64(float64(to-from) / float64(ended.Sub(begun).Microseconds()) * 1000)
})

// readTick reads the time stamp counter and the clock at nearly the same time. It makes twenty attempts and returns the
// attempt that took the shortest time.
func readTick() (tick uint64, at time.Time) {
	closest := time.Hour
	for range 20 {
		before := time.Now()
		read := ticks()
		if took := time.Since(before); took < closest {
			closest, tick, at = took, read, before.Add(took/2)
		}
	}
	return tick, at
}

// clockArgs returns two texts with the rate of the time stamp counter. The result arg is the kernel parameter. The
// result key becomes a part of the snapshot's key, and has the rate to a tenth of a GHz. So a processor with another
// rate uses another snapshot.
func clockArgs() (arg, key string) {
	khz := hostKHz()
	if khz == 0 {
		return "", ""
	}
	return fmt.Sprintf(" tsc_early_khz=%d", khz), fmt.Sprintf("%d00 MHz", (khz+50_000)/100_000)
}

// uptime returns the guest's uptime by its own clock.
func (c *guestClient) uptime(ctx context.Context) (time.Duration, error) {
	text, err := c.get(ctx, "/proc/uptime")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), " ")
	seconds, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0, fmt.Errorf("the guest's uptime is %q: %w", text, err)
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// checkClock calls do. When do has returned and at least two seconds have passed since the call, checkClock compares
// the guest's clock with the host's clock. It returns an error if the guest's clock did not run about as fast during
// this time.
func (c *guestClient) checkClock(ctx context.Context, do func() error) error {
	begun := time.Now()
	from, err := c.uptime(ctx)
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	<-time.After(2*time.Second - time.Since(begun))
	to, err := c.uptime(ctx)
	if err != nil {
		return err
	}
	if rate := float64(to-from) / float64(time.Since(begun)); rate < 0.8 || rate > 1.25 {
		return fmt.Errorf("the guest's clock runs %.2f times as fast as the host's clock", rate)
	}
	return nil
}
