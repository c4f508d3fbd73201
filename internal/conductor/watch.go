package conductor

import (
	"context"
	"errors"
	"slices"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// Watch finds values that others change in the kernel and puts them right, until
// ctx ends. Without a watcher it reads all files in turn.
func (c *Conductor) Watch(ctx context.Context, w cgroup.Watcher) error {
	d := keeper.Drift{
		Keeper: c.keeper, Watcher: w, Noticed: c.askAbout, Repair: c.repair, Retry: c.retryRefused,
		Unwatched: func(dir string, err error) {
			c.log.Warn("cgroup files cannot all be watched; they are looked at in turn", logkey.File, dir, logkey.Err, err)
		},
	}
	return d.Run(ctx)
}

// askAbout has a runtime asked that does not tell by itself whether it was the
// one who wrote: new resources of a container are to be known before its values
// are put right.
func (c *Conductor) askAbout(owner string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.runtimes {
		if r, asks := a.runtime.(Looker); asks {
			r.Look(owner)
		}
	}
}

// retryRefused writes again what the kernel refused: a value may have been refused
// for another that is gone by now, as a pod's quota for a container's.
func (c *Conductor) retryRefused() {
	if owners := c.keeper.Refused(); len(owners) > 0 {
		c.rewrite(func() (out []keeper.Outcome) {
			for _, owner := range owners {
				out = append(out, c.keeper.Settle(owner)...)
			}
			return out
		})
	}
}

// repair writes again what others have changed, and reports it.
func (c *Conductor) repair(owners []string) []keeper.Outcome {
	wrote := c.rewrite(func() []keeper.Outcome {
		return slices.DeleteFunc(c.keeper.Repair(owners...), func(o keeper.Outcome) bool { return o.State == keeper.Same && !c.isMissing(o) })
	})
	for _, o := range wrote {
		c.tellRepair(o)
	}
	return wrote
}

// rewrite has the keeper write what it knows already, and takes note of the outcomes.
func (c *Conductor) rewrite(write func() []keeper.Outcome) []keeper.Outcome {
	c.takeTurn()
	defer c.turn.Unlock()
	w := &work{ev: &lifecycle.Event{Kind: lifecycle.Configure}}
	_ = c.guard(w, func() error {
		w.wrote = write()
		c.confirm(w)
		return nil
	})
	return w.wrote
}

// isMissing reports whether status says that a value is not in force.
func (c *Conductor) isMissing(o keeper.Outcome) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	d, ok := c.tracks[o.Target.Owner].of(o.Value)
	return ok && !d.applied
}

// whose names an owner of values in a log line: its pod and container where they
// are known, with its id.
func (c *Conductor) whose(owner string) []any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.whoseLocked(owner)
}

func (c *Conductor) whoseLocked(owner string) []any {
	out := []any{logkey.Owner, owner}
	p := c.state.Pod(owner)
	if ctr := c.state.Container(owner); ctr != nil {
		out = append(out, logkey.Container, ctr.Name)
		p = c.state.Pod(ctr.PodID)
	}
	if p != nil {
		out = append(out, logkey.Pod, p.Pod.Name, logkey.Namespace, p.Pod.Namespace)
	}
	return out
}

// tellRepair logs what became of a value that others had undone.
func (c *Conductor) tellRepair(o keeper.Outcome) {
	about := append(c.whose(o.Target.Owner), logkey.Field, slotOf(o.Value).String(), logkey.Value, o.Value.String())
	switch o.State {
	case keeper.Applied, keeper.Clipped:
		if errors.Is(o.Err, keeper.ErrContested) {
			c.log.Error("another program keeps changing a list that keeps containers apart; it is written again, less often", append(about, logkey.Err, o.Err)...)
			return
		}
		c.log.Warn("written again what others had undone", about...)
	case keeper.Left:
		c.log.Warn("somebody else writes a value of ours; it is left to them", append(about, logkey.Err, o.Err)...)
	case keeper.Refused:
		c.log.Warn("what others had undone cannot be written again", append(about, logkey.Err, o.Err)...)
	}
}
