package conductor

import (
	"context"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/demotion"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// demoter asks the kernel at intervals to move cold memory of containers to slow memory nodes. No event waits for
// these requests.
type demoter struct {
	kernelDemoter *demotion.Demoter // nil if the agent must not move memory
	timer         *time.Timer       // starts the next run of demote

	mu           sync.Mutex // guards the fields below
	options      demotion.Options
	loggedReason string // the last logged reason why no memory is moved
}

func newDemoter(kernelDemoter *demotion.Demoter, o demotion.Options) *demoter {
	d := &demoter{kernelDemoter: kernelDemoter, timer: time.NewTimer(neverDue)}
	d.configure(o)
	return d
}

// configure changes the limits for the moves. If BytesPerSecond is 0, no memory is moved.
func (d *demoter) configure(o demotion.Options) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.options = o
	if d.kernelDemoter != nil {
		d.timer.Reset(demotion.Interval)
	}
}

// report returns the state of the demotion of memory, for the status.
func (d *demoter) report() demotion.Report {
	if d.kernelDemoter == nil {
		return demotion.Report{}
	}
	return d.kernelDemoter.Report()
}

// demote asks the kernel to move cold memory of some containers. The timer calls it.
func (c *Conductor) demote(context.Context) {
	d := c.demotion
	d.mu.Lock()
	o := d.options
	d.mu.Unlock()
	if o.BytesPerSecond == 0 {
		d.kernelDemoter.Stop()
		d.logReason("", c)
		return
	}
	defer d.timer.Reset(demotion.Interval)
	d.logReason(d.kernelDemoter.Run(o, c.tieredContainers()).Reason, c)
}

// logReason logs the reason why no memory is moved, if it differs from the last logged reason.
func (d *demoter) logReason(reason string, c *Conductor) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if reason != "" && reason != d.loggedReason {
		c.log.Warn("the agent moves no memory to slow memory nodes (placement.demotion)", logkey.Reason, reason)
	}
	d.loggedReason = reason
}

// tieredContainers returns the containers that have fast and slow memory nodes, by container id. It returns none until
// the agent has decided the runtime's list of containers.
func (c *Conductor) tieredContainers() map[string]demotion.Container {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	all := map[string]demotion.Container{}
	if c.lastSync.IsZero() {
		return all
	}
	for id, nodes := range c.node.state.MemoryTiers() {
		if t, err := c.node.target(c.node.state.Container(id)); err == nil {
			all[id] = demotion.Container{Dir: t.Dir, Fast: nodes.Fast, Slow: nodes.Slow}
		}
	}
	return all
}
