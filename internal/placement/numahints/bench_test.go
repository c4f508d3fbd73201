package numahints

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// eight returns 8 resources on 64 nodes, of which other containers use a part: our own kind (counts), and
// plugins' resources (lists of 64 hints).
func eight(seed uint64, plugins bool) (out []Resource) {
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test's random numbers
	need := random.Uint64N(40) + 1
	for i := range 8 {
		r := Resource{Name: fmt.Sprint("r", i)}
		if plugins && i >= 4 {
			for range 64 {
				m := Mask(random.Uint64() &^ random.Uint64())
				if random.IntN(2) == 0 {
					m = 1 << random.IntN(64)
				}
				r.Hints = append(r.Hints, Hint{Nodes: m, Preferred: m.Len() == 1})
			}
			out = append(out, r)
			continue
		}
		c := &Counts{Need: need, Free: make([]uint64, 64), Capacity: make([]uint64, 64)}
		for n := range 64 {
			c.Capacity[n] = 16
			c.Free[n] = random.Uint64N(17)
		}
		r.Counts = c
		out = append(out, r)
	}
	return out
}

// BenchmarkMerge64Nodes8Resources reports the 99th percentile of the processor time of all runs, and the time of the
// slowest of the 64 inputs, for each the fastest of its runs. Other programs change both little.
func BenchmarkMerge64Nodes8Resources(b *testing.B) {
	for name, plugins := range map[string]bool{"own": false, "4 plugins of 64 hints": true} {
		for _, o := range []Options{
			{Policy: BestEffort}, {Policy: BestEffort, PreferClosest: true, Distance: apart}, {Policy: SingleNode}, {Policy: Numeric, AlignedResources: []string{"r0", "r1"}},
		} {
			b.Run(fmt.Sprintf("%s/%s/closest=%v", name, o.Policy, o.PreferClosest), func(b *testing.B) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				var took []time.Duration
				inexact := 0
				var inputs [][]Resource
				for i := range uint64(64) {
					inputs = append(inputs, eight(i, plugins))
				}
				for i := 0; b.Loop(); i++ {
					in := inputs[i%len(inputs)]
					at := threadTime(b)
					if r := Merge(64, in, o); !r.Exact {
						inexact++
					}
					took = append(took, threadTime(b)-at)
				}
				best := slices.Clone(took[:min(len(took), len(inputs))])
				for i, t := range took {
					best[i%len(inputs)] = min(best[i%len(inputs)], t)
				}
				slices.Sort(took)
				b.ReportMetric(float64(slices.Max(best).Microseconds()), "slowest-µs")
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
				b.ReportMetric(float64(inexact)*100/float64(len(took)), "%-cut")
			})
		}
	}
}

// threadTime is the processor time of the thread.
func threadTime(b *testing.B) time.Duration {
	b.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

func apart(a, b int) int {
	switch {
	case a == b:
		return 10
	case a/8 == b/8:
		return 12
	}
	return 20 + (a/8 ^ b/8)
}

// BenchmarkMergeSmall uses an ordinary machine and pod, and the largest machine on which all sets are
// tried.
func BenchmarkMergeSmall(b *testing.B) {
	for _, size := range []struct{ nodes, resources int }{{4, 4}, {8, 8}} {
		var in []Resource
		for i := range size.resources {
			c := &Counts{Need: 20}
			for n := range size.nodes {
				c.Free, c.Capacity = append(c.Free, uint64((n*7+i*3)%17)), append(c.Capacity, 16) //nolint:gosec // small numbers
			}
			in = append(in, Resource{Name: fmt.Sprint("r", i), Counts: c})
		}
		b.Run(fmt.Sprintf("%d nodes, %d resources", size.nodes, size.resources), func(b *testing.B) {
			for b.Loop() {
				if r := Merge(size.nodes, in, Options{Policy: BestEffort}); !r.Exact {
					b.Fatal(r)
				}
			}
		})
	}
}
