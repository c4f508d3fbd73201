package agent

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// headRoom is how much garbage may lie between two collections of a heap of
	// headRoom or more, in bytes. A node agent is paid for by pods: the 4 MiB
	// are what a thousand containers leave of 40 MiB.
	headRoom = 4 << 20
	// leastPercent bounds the work of collecting large heaps, mostPercent the
	// garbage of small ones: Go's own default.
	leastPercent, mostPercent = 30, 100
	// The heap is looked at every startInterval for memoryInterval, then every
	// memoryInterval: what a start leaves lying between what it keeps cannot be
	// given back in pages.
	startInterval  = 50 * time.Millisecond
	memoryInterval = 5 * time.Second
)

// RunAlone is Run in a process that is the agent's alone: the memory of the whole
// process is kept within bounds, too.
func (a *Agent) RunAlone(ctx context.Context) error {
	bounded, end := context.WithCancel(ctx)
	var w sync.WaitGroup
	w.Go(func() { boundMemory(bounded) })
	defer w.Wait()
	defer end()
	return a.Run(ctx)
}

// boundMemory keeps the process's garbage within bounds until ctx ends. A hard
// limit (GOMEMLIMIT) near what lives would have the collector run without pause;
// this only has it run earlier.
func boundMemory(ctx context.Context) {
	before := debug.SetGCPercent(mostPercent)
	defer debug.SetGCPercent(before)
	t := time.NewTicker(startInterval)
	defer t.Stop()
	at := mostPercent
	for i := 0; ; i++ {
		if i == int(memoryInterval/startInterval) { // the start is over
			_ = forgetProgram() // it only stays mapped otherwise
			t.Reset(memoryInterval)
		}
		// Setting it stops the world for a moment: small differences do not
		// count.
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

// percent is by how much a heap may grow, in percent of what lives in it.
func percent(live uint64) int {
	if live <= headRoom {
		return mostPercent
	}
	return max(leastPercent, int(100*headRoom/live))
}

// liveHeap returns what the last collection found alive, in bytes.
func liveHeap() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return s[0].Value.Uint64()
}
