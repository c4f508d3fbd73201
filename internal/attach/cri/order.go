package cri

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/attach/workerpool"
)

// callQueues runs functions after the runtime's answers to calls. Functions for the same pod run one after another.
// callQueues also orders starts: a container that owns CPUs starts after the containers whose StartContainer calls came
// earlier.
type callQueues struct {
	log    *slog.Logger
	serial *atomic.Uint64  // the store's counter; gives the order of starts
	ctx    context.Context // for queued functions and relayed connections; Run sets it
	work   workerpool.Pool // the goroutines of queued functions and relayed connections

	mu     sync.Mutex               // guards the fields below
	queues map[string]chan struct{} // by pod: closed when the last function of the pod's queue has returned
	starts map[uint64]chan struct{} // by serial: closed when the container has started
}

func newCallQueues(log *slog.Logger, serial *atomic.Uint64) *callQueues {
	return &callQueues{log: log, serial: serial, queues: map[string]chan struct{}{}, starts: map[uint64]chan struct{}{}}
}

// enqueue queues f behind the other functions of a pod. It does not block, so it does not delay the runtime's answer.
func (o *callQueues) enqueue(pod string, f func(ctx context.Context)) {
	done := make(chan struct{})
	o.mu.Lock()
	before := o.queues[pod]
	o.queues[pod] = done
	o.mu.Unlock()
	o.work.Go(func() {
		defer func() {
			o.mu.Lock()
			if o.queues[pod] == done {
				delete(o.queues, pod)
			}
			o.mu.Unlock()
			close(done)
		}()
		if before != nil {
			<-before
		}
		connect.RecoverPanic(o.log, "running a queued function of a pod", func() { f(o.ctx) })
	})
}

// awaitQueue returns when all functions that are queued for a pod have returned, or ctx ends.
func (o *callQueues) awaitQueue(ctx context.Context, pod string) {
	o.mu.Lock()
	last := o.queues[pod]
	o.mu.Unlock()
	if last == nil {
		return
	}
	select {
	case <-last:
	case <-ctx.Done():
	}
}

// maxStartWait is the longest wait for containers whose start began earlier.
const maxStartWait = 5 * time.Second

// beginStart notes that a container is about to start. Its serial is higher than those of all earlier starts. The
// caller must call end when the container has started.
func (o *callQueues) beginStart() (serial uint64, end func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	serial = o.serial.Add(1)
	done := make(chan struct{})
	o.starts[serial] = done
	return serial, func() {
		o.mu.Lock()
		delete(o.starts, serial)
		o.mu.Unlock()
		close(done)
	}
}

// awaitStarts waits for all starts that have a lower number than serial, which are those that began earlier. It waits
// at most for maxStartWait. A container that owns CPUs must not run its first instruction while another container
// starts with these CPUs. The agent can take CPUs from the other container only when that container has a cgroup.
func (o *callQueues) awaitStarts(ctx context.Context, serial uint64) {
	ctx, cancel := context.WithTimeout(ctx, maxStartWait)
	defer cancel()
	o.mu.Lock()
	var earlier []chan struct{}
	for s, done := range o.starts {
		if s < serial {
			earlier = append(earlier, done)
		}
	}
	o.mu.Unlock()
	for _, done := range earlier {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}

// hasWork reports whether a function is queued or runs, or a container is starting.
func (o *callQueues) hasWork() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queues) > 0 || len(o.starts) > 0
}
