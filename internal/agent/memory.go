package agent

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// minHeapGrowth is how many bytes of garbage may accumulate between two garbage collections if the live
	// heap is at least as large. Pods pay for the memory of a node agent: with a thousand containers the
	// limit of 4 MiB keeps the agent below 40 MiB.
	minHeapGrowth = 4 << 20
	// minPercent limits how often large heaps are collected. maxPercent limits the garbage of small heaps;
	// it is Go's default.
	minPercent, maxPercent = 30, 100
	// The agent checks the heap every startInterval until memoryInterval has passed, and then every
	// memoryInterval. The garbage of the start is mixed with live objects on the same pages, and such pages
	// cannot be returned to the system.
	startInterval  = 50 * time.Millisecond
	memoryInterval = 5 * time.Second
)

// RunAlone is Run for a process that runs nothing else: it also limits the memory of the process and
// reports to systemd.
func (a *Agent) RunAlone(ctx context.Context) error {
	bounded, end := context.WithCancel(ctx)
	var w sync.WaitGroup
	w.Go(func() { boundMemory(bounded) })
	w.Go(func() { a.supervised(bounded) })
	defer w.Wait()
	defer end()
	return a.Run(ctx)
}

// boundMemory limits the process's garbage until ctx ends. A hard limit near the live heap (GOMEMLIMIT)
// would make the garbage collector run without pause. This function only makes it run more often.
func boundMemory(ctx context.Context) {
	before := debug.SetGCPercent(maxPercent)
	defer debug.SetGCPercent(before)
	t := time.NewTicker(startInterval)
	defer t.Stop()
	at := maxPercent
	for i := 0; ; i++ {
		if i == int(memoryInterval/startInterval) { // the start has ended
			_ = releaseProgramPages() // otherwise the memory stays mapped
			t.Reset(memoryInterval)
		}
		// Each change stops all goroutines for a moment, so small differences are ignored.
		if p := percent(liveHeap()); p/5 != at/5 {
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

// percent returns by how many percent of its live part a heap may grow.
func percent(live uint64) int {
	if live <= minHeapGrowth {
		return maxPercent
	}
	return max(minPercent, int(100*minHeapGrowth/live))
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
