// Package clock fails tests of code that takes too long for the length of its input. It measures processor time, so
// other work on the machine fails no test.
package clock

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The limit is base for any input, plus perByte for each byte. Parsers take 2 to 50 ns per byte. A parser that reads
// its input again for each part of it exceeds the limit at some thousand parts.
const (
	base    = 50 * time.Millisecond
	perByte = 200 * time.Nanosecond
)

// Watch starts to measure the calling goroutine. The returned function stops, and fails the test if the code between
// took far longer than parsing that many bytes may take.
func Watch(tb testing.TB, bytes int) (end func()) {
	tb.Helper()
	runtime.LockOSThread()
	stop := watch(tb, bytes, unix.RUSAGE_THREAD)
	return func() {
		stop()
		runtime.UnlockOSThread()
	}
}

// WatchAll is Watch for code with goroutines of its own: it measures the whole process, including parallel tests.
func WatchAll(tb testing.TB, bytes int) (end func()) {
	tb.Helper()
	return watch(tb, bytes, unix.RUSAGE_SELF)
}

// Bound runs code, which may start goroutines, up to three times. It fails the test if every run takes far longer than
// parsing that many bytes may take. It measures the whole process, in which a single run may include garbage
// collection.
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

// Took returns the processor time that a function takes on its goroutine.
func Took(run func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := processor(unix.RUSAGE_THREAD)
	run()
	return processor(unix.RUSAGE_THREAD) - start
}

// Limit is how long parsing that many bytes may take. With the race detector it is far longer.
func Limit(bytes int) time.Duration { return slowdown * (base + time.Duration(bytes)*perByte) }

func processor(who int) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
