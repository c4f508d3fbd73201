package conductor

import (
	"context"
	"slices"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// Watch finds values that other programs change in the kernel and repairs them, until ctx ends.
// Without a watcher it polls all files in turn.
func (c *Conductor) Watch(ctx context.Context, w cgroup.Watcher) error {
	if c.observe != nil { // other programs write what they like
		<-ctx.Done()
		return nil
	}
	d := keeper.Drift{
		Keeper: c.keeper, Watcher: w, Noticed: c.askForResources, Repair: c.repair, Retry: c.retryRefused,
		Unwatched: func(dir string, err error) {
			c.log.Warn("the agent cannot watch all cgroup files with inotify, so it polls them", logkey.File, dir, logkey.Err, err)
		},
	}
	return d.Run(ctx)
}

// RepairAll checks every value in force, without a pause. It writes again what others have changed and
// what the kernel refused. Watch does the same in small steps, within a second.
func (c *Conductor) RepairAll() {
	if owners := c.keeper.DifferingOwners(); len(owners) > 0 {
		c.repair(owners)
	}
	c.retryRefused()
}

// askForResources polls a runtime that does not report updates for changed resources of
// containers. The agent must know new resources before it repairs the container's values.
func (c *Conductor) askForResources(owner string) {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	for _, a := range c.node.runtimes {
		if r, asks := a.runtime.(ResourcePoller); asks {
			r.Poll(owner)
		}
	}
}

// retryRefused writes again what the kernel refused. The reason may have been another value
// that is gone by now, such as a container's quota above its pod's.
func (c *Conductor) retryRefused() {
	if owners := c.keeper.RefusedOwners(); len(owners) > 0 {
		c.rewrite(lifecycle.Repair, func() (out []keeper.Outcome) {
			for _, owner := range owners {
				out = append(out, c.keeper.Reconcile(owner)...)
			}
			return out
		})
	}
}

// repair writes again what others have changed, and reports it.
func (c *Conductor) repair(owners []string) []keeper.Outcome {
	wrote := c.rewrite(lifecycle.Repair, func() []keeper.Outcome {
		return slices.DeleteFunc(c.keeper.Repair(owners...), func(o keeper.Outcome) bool { return o.State == keeper.Unchanged && !c.node.isMissing(o) })
	})
	for _, o := range wrote {
		c.reports.ReportRepair(o)
	}
	return wrote
}

// isMissing reports whether a value is not in force, so that status shows it.
func (n *node) isMissing(o keeper.Outcome) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	d, ok := n.tracks[o.Target.Owner].find(o.Value)
	return ok && !d.Applied
}
