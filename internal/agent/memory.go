package agent

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// minHeapGrowth is how many bytes of garbage may accumulate between two garbage collections, for a live heap
	// of at least this size. With a thousand containers this keeps the agent below 40 MiB.
	minHeapGrowth = 4 << 20
	// startHeapGrowth replaces minHeapGrowth in the first memoryInterval. In that time the agent reads all containers
	// while the runtime waits, and more garbage collections would take a third of the time.
	startHeapGrowth = 12 << 20
	// minPercent limits how often a large heap is collected. maxPercent, Go's default, limits the garbage of a small
	// heap.
	minPercent, maxPercent = 30, 100
	// The agent checks the heap every startInterval in the first memoryInterval, and then every memoryInterval. It
	// checks often at first, because garbage between live objects keeps whole pages in use.
	startInterval  = 50 * time.Millisecond
	memoryInterval = 5 * time.Second
)

// RunAlone is Run for a process that runs only the agent. It also limits the garbage of the process and reports the
// agent's state to systemd.
func (a *Agent) RunAlone(ctx context.Context) error {
	bounded, end := context.WithCancel(ctx)
	var w sync.WaitGroup
	w.Go(func() { limitMemory(bounded) })
	w.Go(func() { a.reportToSystemd(bounded) })
	defer w.Wait()
	defer end()
	return a.Run(ctx)
}

// limitMemory adapts the target of the garbage collector to the size of the heap, until ctx ends. It sets no hard
// limit (GOMEMLIMIT), because a limit near the live heap would make the collector run all the time.
func limitMemory(ctx context.Context) {
	before := debug.SetGCPercent(maxPercent)
	defer debug.SetGCPercent(before)
	t := time.NewTicker(startInterval)
	defer t.Stop()
	at, growth := maxPercent, uint64(startHeapGrowth)
	for i := 0; ; i++ {
		if i == int(memoryInterval/startInterval) { // the first memoryInterval has ended
			growth = minHeapGrowth
			_ = releaseProgramPages() // after an error the pages stay mapped
			t.Reset(memoryInterval)
		}
		// Each change of the target stops all goroutines for a moment, so small differences are ignored.
		if p := gcPercent(liveHeap(), growth); p/5 != at/5 {
			at = p
			debug.SetGCPercent(p)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// gcPercent returns the target of the garbage collector, as a percentage of the live heap. A heap larger than
// minHeapGrowth may have growth bytes of garbage, but always minPercent.
func gcPercent(live, growth uint64) int {
	if live <= minHeapGrowth {
		return maxPercent
	}
	return max(minPercent, int(100*growth/live))
}

// liveHeap returns the live heap after the last collection, in bytes.
func liveHeap() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return s[0].Value.Uint64()
}
