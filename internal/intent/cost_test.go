package intent

import (
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/hostile"
)

// BenchmarkWorstPod reads each of the pods that cost most. None may take a millisecond: least-ns is the
// shortest run, which other load on the machine affects least.
func BenchmarkWorstPod(b *testing.B) {
	for _, p := range hostile.Pods(lifecycle.MaxValueBytes) {
		b.Run(p.Name, func(b *testing.B) {
			pod, least := &lifecycle.Pod{Labels: p.Labels, Annotations: p.Annotations}, time.Duration(math.MaxInt64)
			b.ReportAllocs()
			for b.Loop() {
				start := time.Now()
				Rules{}.Authorise(Read(pod, nil, Dialects()), "default")
				least = min(least, time.Since(start))
			}
			b.ReportMetric(float64(least), "least-ns")
		})
	}
}

// cost returns how much f allocates.
func cost(f func()) (allocations, bytes uint64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs, after.TotalAlloc - before.TotalAlloc
}
