// Package clock makes a test fail if the tested code takes too long for the length of its input. It measures processor
// time, so other work on the machine makes no test fail.
package clock

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// base is the part of Limit that is the same for every input, and perByte is the part for each byte of the input.
// Parsers take 2 to 50 ns per byte. A parser that reads its whole input again for each element of the input exceeds the
// limit if the input has some thousand elements.
const (
	base    = 50 * time.Millisecond
	perByte = 200 * time.Nanosecond
)

// Watch starts to measure the processor time of the calling goroutine. The returned function stops the measurement, and
// makes the test fail if the time is longer than Limit for an input of this many bytes.
func Watch(tb testing.TB, bytes int) (end func()) {
	tb.Helper()
	runtime.LockOSThread()
	stop := watch(tb, bytes, unix.RUSAGE_THREAD)
	return func() {
		stop()
		runtime.UnlockOSThread()
	}
}

// WatchAll does the same as Watch for code that starts goroutines: it measures the whole process, including parallel
// tests.
func WatchAll(tb testing.TB, bytes int) (end func()) {
	tb.Helper()
	return watch(tb, bytes, unix.RUSAGE_SELF)
}

// Bound calls run, which may start goroutines, up to three times. It makes the test fail if all three calls take longer
// than Limit for an input of this many bytes. It measures the whole process. A single call may be too long only because
// of garbage collection.
func Bound(tb testing.TB, bytes int, run func()) {
	tb.Helper()
	var took [3]time.Duration
	for i := range took {
		start := processorTime(unix.RUSAGE_SELF)
		run()
		if took[i] = processorTime(unix.RUSAGE_SELF) - start; took[i] <= Limit(bytes) {
			return
		}
	}
	tb.Errorf("an input of %d bytes took %v of processor time, want at most %s", bytes, took, Limit(bytes))
}

// watch is Watch or WatchAll. who is the first argument of getrusage(2): one thread or the whole process.
func watch(tb testing.TB, bytes, who int) (end func()) {
	tb.Helper()
	start := processorTime(who)
	return func() {
		tb.Helper()
		if took := processorTime(who) - start; took > Limit(bytes) {
			tb.Errorf("an input of %d bytes took %s of processor time, want at most %s", bytes, took, Limit(bytes))
		}
	}
}

// Took returns the processor time that a function takes on its goroutine.
func Took(run func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := processorTime(unix.RUSAGE_THREAD)
	run()
	return processorTime(unix.RUSAGE_THREAD) - start
}

// Limit returns the processor time that code may take for an input of this many bytes. With the race detector, the
// limit is higher by the factor slowdown.
func Limit(bytes int) time.Duration { return slowdown * (base + time.Duration(bytes)*perByte) }

// processorTime returns the processor time that the thread or process has used. who is the first argument of getrusage(2).
func processorTime(who int) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
