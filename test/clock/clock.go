// Package clock fails tests of code that takes too long for the text it was given.
// It goes by processor time, so that other work on the machine fails nothing.
package clock

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What code may take: so much for any text, and so much more for each byte of it.
// Readers take 2 to 50 ns for a byte. What reads its text again for each part of it is
// past this at some thousand parts.
const (
	base    = 50 * time.Millisecond
	perByte = 200 * time.Nanosecond
)

// Watch begins to measure. The function that it returns ends that, and fails the test
// where what came between took far longer than reading so many bytes of foreign text
// can. Of it the calling goroutine alone is measured.
func Watch(tb testing.TB, bytes int) (end func()) {
	tb.Helper()
	runtime.LockOSThread()
	stop := watch(tb, bytes, unix.RUSAGE_THREAD)
	return func() {
		stop()
		runtime.UnlockOSThread()
	}
}

// WatchAll is Watch for what has goroutines of its own: all of the process are measured,
// those of tests next to it, too.
func WatchAll(tb testing.TB, bytes int) (end func()) {
	tb.Helper()
	return watch(tb, bytes, unix.RUSAGE_SELF)
}

// Bound runs code that may have goroutines of its own, and fails the test where it takes
// far longer than reading so many bytes of foreign text can, each of three times. All of
// the process is measured: once it may be a collection of garbage that takes that long.
func Bound(tb testing.TB, bytes int, run func()) {
	tb.Helper()
	var took [3]time.Duration
	for i := range took {
		start := processor(unix.RUSAGE_SELF)
		run()
		if took[i] = processor(unix.RUSAGE_SELF) - start; took[i] <= Limit(bytes) {
			return
		}
	}
	tb.Errorf("%d bytes took %v of processor time, want at most %s", bytes, took, Limit(bytes))
}

func watch(tb testing.TB, bytes, who int) (end func()) {
	tb.Helper()
	start := processor(who)
	return func() {
		tb.Helper()
		if took := processor(who) - start; took > Limit(bytes) {
			tb.Errorf("%d bytes took %s of processor time, want at most %s", bytes, took, Limit(bytes))
		}
	}
}

// Limit is how long reading so many bytes may take, with the race detector far longer.
func Limit(bytes int) time.Duration { return slowdown * (base + time.Duration(bytes)*perByte) }

func processor(who int) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
