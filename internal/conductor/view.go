package conductor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/api"
)

// View calls read with the current state of the node. No event is decided while read runs.
func (c *Conductor) View(read func(*nodeview.View)) {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	v := nodeview.View{State: c.node.state, Synced: c.lastSync, MissingCgroups: c.presence.MissingCgroups(), Keeper: c.keeper}
	v.ApplyResult, v.Demotion = c.applyResult, c.demotion.report()
	if c.cpuClasses.writer != nil {
		v.CPUClasses = c.cpuClasses.writer.Report()
	}
	if c.observer != nil {
		v.Observed = c.observer.counts()
	}
	v.Conflict = func(ctr *engine.Container) *lifecycle.Problem { return c.node.conflicts[ctr.Key].problem() }
	v.Attached = func() []api.Attachment { return attachedNow(c.node.runtimes) }
	read(&v)
}

// attachedNow lists the connected runtimes.
func attachedNow(runtimes map[string]connectedRuntime) (all []api.Attachment) {
	for _, a := range runtimes {
		all = append(all, api.Attachment{Name: a.carrier.Name(), State: "connected", Runtime: a.runtime.About()})
	}
	return all
}

// CopyState returns a copy of the state. The caller can decide events on it without an effect on the node.
func (c *Conductor) CopyState() (s *engine.State) {
	_, _ = c.run(internalEvent(lifecycle.WhatIf, func() { s = c.node.state.Copy() }, nil))
	return s
}

// Journal returns the journal of the last events.
func (c *Conductor) Journal() *nodeview.Journal { return &c.reports.Journal }

// stuckAfter is the time after which an event counts as stuck. It is long, because the kernel sometimes reclaims memory
// for many seconds when the agent lowers a memory limit.
const stuckAfter = 2 * time.Minute

// Alive returns an error if the conductor cannot handle events: its lock was not free before ctx ended, or
// one event takes longer than stuckAfter. The result does not depend on other processes.
func (c *Conductor) Alive(ctx context.Context) error {
	if took := c.eventTimes.currentEventDuration(c.now()); took > stuckAfter {
		return fmt.Errorf("the agent has been handling an event for %v", took.Round(time.Second))
	}
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for !c.node.mu.TryLock() {
		select {
		case <-ctx.Done():
			return errors.New("the agent cannot handle events: the lock of its state was not free in time")
		case <-poll.C:
		}
	}
	c.node.mu.Unlock()
	return nil
}
