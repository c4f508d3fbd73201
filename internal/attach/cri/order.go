package cri

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/trimtab/trimtab/internal/report/logkey"
)

// after has something told of a pod, after everything else that is still to be
// told of it. It does not block: answers of the runtime wait for nobody.
func (a *Attachment) after(pod string, f func(ctx context.Context)) {
	done := make(chan struct{})
	a.mu.Lock()
	before := a.lanes[pod]
	a.lanes[pod] = done
	a.mu.Unlock()
	a.work.Go(func() {
		defer func() {
			a.mu.Lock()
			if a.lanes[pod] == done {
				delete(a.lanes, pod)
			}
			a.mu.Unlock()
			close(done)
		}()
		if before != nil {
			<-before
		}
		a.contain("telling of a pod", func() { f(a.ctx) })
	})
}

// await returns when all that is to be told of a pod has been.
func (a *Attachment) await(ctx context.Context, pod string) {
	a.mu.Lock()
	last := a.lanes[pod]
	a.mu.Unlock()
	if last == nil {
		return
	}
	select {
	case <-last:
	case <-ctx.Done():
	}
}

// mostStart bounds the wait for containers that are starting.
const mostStart = 5 * time.Second

// start notes that a container is about to start. The function returned ends
// that; serial orders starts.
func (a *Attachment) start() (serial uint64, end func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.serial++
	serial = a.serial
	done := make(chan struct{})
	a.starts[serial] = done
	return serial, func() {
		a.mu.Lock()
		delete(a.starts, serial)
		a.mu.Unlock()
		close(done)
	}
}

// starting waits for all starts before this one. A container that owns CPUs
// must not run its first instruction while another is still being started with
// them: until that one has its cgroup, nobody can take them away.
func (a *Attachment) starting(ctx context.Context, serial uint64) {
	ctx, cancel := context.WithTimeout(ctx, mostStart)
	defer cancel()
	a.mu.Lock()
	var earlier []chan struct{}
	for s, done := range a.starts {
		if s < serial {
			earlier = append(earlier, done)
		}
	}
	a.mu.Unlock()
	for _, done := range earlier {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}

// contain keeps a panic of what it calls from taking the agent down. It reports
// whether there was none.
func (a *Attachment) contain(what string, f func()) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			a.o.Log.Error("panic contained", logkey.In, what, logkey.Panic, fmt.Sprint(r), logkey.Stack, string(debug.Stack()))
		}
	}()
	f()
	return true
}
