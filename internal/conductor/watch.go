package conductor

import (
	"context"
	"slices"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// Watch finds values that other programs change in the kernel and repairs them, until ctx ends. Without a watcher it
// reads all files again and again.
func (c *Conductor) Watch(ctx context.Context, w cgroup.Watcher) error {
	if c.observer != nil { // in mode observe, the agent repairs nothing
		<-ctx.Done()
		return nil
	}
	d := keeper.Drift{
		Keeper: c.keeper, Watcher: w, BeforeRepair: c.pollResources, Repair: c.repair, Retry: c.retryRefused,
		OnUnwatched: func(dir string, err error) {
			c.log.Warn("the agent cannot watch all cgroup files with inotify, so it polls them", logkey.File, dir, logkey.Err, err)
		},
	}
	return d.Run(ctx)
}

// RepairAll checks the values of all containers and pods at once. It writes the values that other programs have changed
// and the values that the kernel refused. Watch does the same in small steps.
func (c *Conductor) RepairAll() {
	if owners := c.keeper.DifferingOwners(); len(owners) > 0 {
		c.repair(owners)
	}
	c.retryRefused()
}

// pollResources makes the attachment read the resources of a container again, if the runtime does not report updates.
// The agent must know new resources before it repairs the container's values.
func (c *Conductor) pollResources(owner string) {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	for _, a := range c.node.runtimes {
		if r, isPoller := a.runtime.(ResourcePoller); isPoller {
			r.Poll(owner)
		}
	}
}

// retryRefused writes again the values that the kernel refused. Possibly the kernel accepts them now, for example a
// container's quota after the pod's quota was raised.
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

// repair writes again the values of owners that other programs have changed, and reports each repair.
func (c *Conductor) repair(owners []string) []keeper.Outcome {
	wrote := c.rewrite(lifecycle.Repair, func() []keeper.Outcome {
		return slices.DeleteFunc(c.keeper.Repair(owners...), func(o keeper.Outcome) bool { return o.State == keeper.Unchanged && !c.node.isMissing(o) })
	})
	for _, o := range wrote {
		c.reports.ReportRepair(o)
	}
	return wrote
}

// isMissing reports whether the stored result of the outcome's value says that the value is not in force.
func (n *node) isMissing(o keeper.Outcome) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	d, ok := n.tracks[o.Target.Owner].find(o.Value)
	return ok && !d.Applied
}
