package agent

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// headRoom is how much garbage may exist between two collections of a heap of
	// headRoom or more, in bytes. Pods pay for a node agent's memory: the 4 MiB are
	// what a thousand containers leave of 40 MiB.
	headRoom = 4 << 20
	// minPercent limits the work of collecting large heaps, maxPercent the
	// garbage of small ones: Go's own default.
	minPercent, maxPercent = 30, 100
	// The heap is checked every startInterval for memoryInterval, then every
	// memoryInterval: the garbage of a start lies between live memory, whose pages
	// cannot be returned.
	startInterval  = 50 * time.Millisecond
	memoryInterval = 5 * time.Second
)

// RunAlone is Run in a process of the agent's own: it limits the memory of the
// whole process, too, and reports to systemd.
func (a *Agent) RunAlone(ctx context.Context) error {
	bounded, end := context.WithCancel(ctx)
	var w sync.WaitGroup
	w.Go(func() { boundMemory(bounded) })
	w.Go(func() { a.supervised(bounded) })
	defer w.Wait()
	defer end()
	return a.Run(ctx)
}

// boundMemory limits the process's garbage until ctx ends. A hard limit
// (GOMEMLIMIT) near the live heap would make the collector run without pause; this
// only makes it run earlier.
func boundMemory(ctx context.Context) {
	before := debug.SetGCPercent(maxPercent)
	defer debug.SetGCPercent(before)
	t := time.NewTicker(startInterval)
	defer t.Stop()
	at := maxPercent
	for i := 0; ; i++ {
		if i == int(memoryInterval/startInterval) { // the start is over
			_ = forgetProgram() // otherwise it only stays mapped
			t.Reset(memoryInterval)
		}
		// A change stops the world for a moment: small differences do not count.
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

// percent is by how much a heap may grow, in percent of its live part.
func percent(live uint64) int {
	if live <= headRoom {
		return maxPercent
	}
	return max(minPercent, int(100*headRoom/live))
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
