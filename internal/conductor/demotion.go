package conductor

import (
	"context"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/demotion"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// demoter asks the kernel to move cold memory of containers, at intervals. No event waits for that.
type demoter struct {
	mover *demotion.Demoter // nil if the agent must not move memory
	due   *time.Timer

	mu           sync.Mutex // guards the fields below
	options      demotion.Options
	loggedReason string // the last logged reason why nothing is moved
}

func newDemoter(mover *demotion.Demoter, o demotion.Options) *demoter {
	d := &demoter{mover: mover, due: time.NewTimer(neverDue)}
	d.configure(o)
	return d
}

// configure changes the limits. If BytesPerSecond is 0, nothing is moved.
func (d *demoter) configure(o demotion.Options) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.options = o
	if d.mover != nil {
		d.due.Reset(demotion.Interval)
	}
}

// report returns the state of the demotion of memory, for the status.
func (d *demoter) report() demotion.Report {
	if d.mover == nil {
		return demotion.Report{}
	}
	return d.mover.Report()
}

// demote asks the kernel to move cold memory of some containers. The timer calls it.
func (c *Conductor) demote(context.Context) {
	d := c.demotion
	d.mu.Lock()
	o := d.options
	d.mu.Unlock()
	if o.BytesPerSecond == 0 {
		d.mover.Stop()
		d.logReason("", c)
		return
	}
	defer d.due.Reset(demotion.Interval)
	d.logReason(d.mover.Run(o, c.tieredContainers()).Off, c)
}

// logReason logs the reason why nothing is moved, if it differs from the last one.
func (d *demoter) logReason(off string, c *Conductor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if off != "" && off != d.loggedReason {
		c.log.Warn("no memory is demoted (placement.demotion)", logkey.Reason, off)
	}
	d.loggedReason = off
}

// tieredContainers returns the containers that have fast and slow memory; none until the runtime's list of containers
// was decided.
func (c *Conductor) tieredContainers() map[string]demotion.Container {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	all := map[string]demotion.Container{}
	if c.synced.IsZero() {
		return all
	}
	for id, nodes := range c.node.state.MemoryTiers() {
		if t, err := c.node.target(c.node.state.Container(id)); err == nil {
			all[id] = demotion.Container{Dir: t.Dir, Fast: nodes.Fast, Slow: nodes.Slow}
		}
	}
	return all
}
