package agent

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// minHeapGrowth is how many bytes of garbage may accumulate between two garbage collections, if at least
	// minHeapGrowth bytes are live. With a thousand containers this limit keeps the agent's memory below 40 MiB.
	minHeapGrowth = 4 << 20
	// startHeapGrowth replaces minHeapGrowth during the first memoryInterval after the start. During this interval the
	// agent reads all containers, and the runtime waits for the agent. With minHeapGrowth, garbage collections
	// would need a third of this time.
	startHeapGrowth = 12 << 20
	// The garbage that may accumulate between two collections is a percentage of the live heap. minPercent is the
	// minimum for a large heap, so that collections are not too frequent. maxPercent is Go's default, and applies to a
	// heap of at most minHeapGrowth bytes.
	minPercent, maxPercent = 30, 100
	// The agent adapts the percentage to the heap every startInterval during the first memoryInterval, and then every
	// memoryInterval. It starts with the short interval, because pages with only some live objects stay in use after a
	// collection.
	startInterval  = 50 * time.Millisecond
	memoryInterval = 5 * time.Second
)

// RunAlone calls Run in a process that runs only the agent. It also limits the garbage of the process and reports the
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

// gcPercent returns how much garbage may accumulate until the next collection, as a percentage of the live heap. If the
// live heap is at most minHeapGrowth bytes, the result is maxPercent. Otherwise the result stands for growth bytes of
// garbage, but is at least minPercent.
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
