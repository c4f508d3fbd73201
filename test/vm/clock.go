package vm

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// hostKHz is the rate of the host's time stamp counter, zero if it cannot be measured. A guest that measures the rate
// on a busy host may be wrong by a factor of four, and then its clock is wrong in every copy of the snapshot. So the
// kernel parameter tsc_early_khz sets the rate (since Linux 4.20).
var hostKHz = sync.OnceValue(func() uint64 {
	from, begun := readTick()
	if from == 0 {
		return 0
	}
	<-time.After(100 * time.Millisecond)
	to, ended := readTick()
	return uint64(float64(to-from) / float64(ended.Sub(begun).Microseconds()) * 1000)
})

// readTick reads the counter and the clock at nearly the same time, the best of twenty attempts.
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

// clockArgs returns the kernel parameter with the counter's rate. The snapshot's key has the rate to a tenth of a GHz,
// so that the snapshot is not restored on another processor.
func clockArgs() (arg, key string) {
	khz := hostKHz()
	if khz == 0 {
		return "", ""
	}
	return fmt.Sprintf(" tsc_early_khz=%d", khz), fmt.Sprintf("%d00 MHz", (khz+50_000)/100_000)
}

// uptime returns the guest's uptime by its own clock.
func (c *channel) uptime(ctx context.Context) (time.Duration, error) {
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

// checkClock calls do and then checks that the guest's clock ran as fast as the host's meanwhile, for at least two
// seconds.
func (c *channel) checkClock(ctx context.Context, do func() error) error {
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
		return fmt.Errorf("the guest's clock goes %.2f times as fast as the host's", rate)
	}
	return nil
}
