package conductor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// Release restores the original values of all containers and pods. emptyPolicy must be a policy that decides no values.
// If the engine does not know an original value, Release writes the value that the keeper once read from the kernel. If
// another program has changed a value since the agent wrote it, Release does not restore this value. Release returns
// when the runtime's copies agree with the kernel, or when ctx ends.
func (c *Conductor) Release(ctx context.Context, emptyPolicy engine.Policy) api.Released {
	var out []keeper.Outcome
	w := c.newWork(nil, &lifecycle.Event{Kind: lifecycle.Configure})
	w.facts.Policy = &emptyPolicy
	w.beforeGather, w.afterApply = func() { out = c.keeper.CedeChanged() }, c.keeper.ReleaseAll
	if _, err := c.run(w); err == nil {
		out = append(out, w.report.Written...)
	}
	r := SumReleased(out)
	files, failed := c.cpuClasses.release()
	r.Restored, r.Failed = r.Restored+files, append(r.Failed, failed...)
	r.PendingCopies = c.awaitCopies(ctx)
	r.Stale = c.node.staleValues()
	c.log.Info("restored the original values of containers and pods", logkey.Values, r.Restored, logkey.Changed, len(r.LeftToOthers)+len(r.Failed))
	return r
}

// applyTuning applies new settings of the conductor.
func (c *Conductor) applyTuning(t Tuning) {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	c.node.queue.Pace, c.node.cededFields = t.Pace, fieldSet(t.Ceded)
	c.failClosed.Store(t.FailClosed)
	c.keeper.SetConflictLimit(t.ConflictLimit)
	c.demotion.configure(t.Demotion)
}

// awaitCopies waits until the runtime's stored copies are up to date, or until ctx ends. It returns the number of
// copies that are not up to date. Without a connected runtime, awaitCopies does not wait.
func (c *Conductor) awaitCopies(ctx context.Context) int {
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		c.node.mu.Lock()
		n, attached := len(c.node.queue.Waiting), len(c.node.runtimes) > 0
		if c.node.queue.Sending {
			n++
		}
		c.node.mu.Unlock()
		if n == 0 || !attached {
			return n
		}
		select {
		case <-ctx.Done():
			return n
		case <-poll.C:
		}
	}
}

// staleValues lists the agent's values that are still in the runtime's stored copies after a release. At the kubelet's
// next update of such a container, the runtime writes these values to the kernel again.
func (n *node) staleValues() []api.NotRestored {
	n.mu.Lock()
	defer n.mu.Unlock()
	to, can := n.anyConnected(), n.capabilities(nil)
	var out []api.NotRestored
	for _, id := range n.state.Containers() {
		out = append(out, n.staleValuesInCopy(to, &can, id)...)
	}
	slices.SortFunc(out, func(a, b api.NotRestored) int {
		return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Setting, b.Setting))
	})
	return out
}

// staleValuesInCopy lists the agent's values in the runtime's stored copy of one container.
func (n *node) staleValuesInCopy(to connectedRuntime, can *Capabilities, id string) (out []api.NotRestored) {
	ctr := n.state.Container(id)
	if ctr == nil || !ctr.Alive() {
		return nil
	}
	t := n.track(id)
	for _, v := range n.state.Values(ctr) {
		if !t.Lacks(ctr, v) {
			continue
		}
		k := api.NotRestored{Owner: n.state.FullName(ctr), Setting: v.Field.String(), Kernel: t.Stored[v.Field]}
		if target, err := n.target(ctr); err == nil {
			k.Cgroup = target.Dir
		}
		switch {
		case to.carrier == nil:
			k.Why = "no runtime is connected, so the agent cannot send the original value " + v.String()
		case can.WhyNotSent(runtimes.AgentUpdate, v) != "":
			k.Why = can.WhyNotSent(runtimes.AgentUpdate, v)
		default:
			k.Why = fmt.Sprintf("%s did not accept the original value %s", cmp.Or(to.runtime.About(), "the runtime"), v.String())
		}
		out = append(out, k)
	}
	return out
}

// SumReleased counts the values that a release restored, and lists the values that it did not restore.
func SumReleased(out []keeper.Outcome) api.Released {
	type setting struct {
		dir, key string
		field    lifecycle.Field
	}
	last := map[setting]keeper.Outcome{}
	for _, o := range out {
		last[setting{o.Target.Dir, o.Value.Key, o.Value.Field}] = o
	}
	var r api.Released
	for _, o := range last {
		entry := api.NotRestored{Owner: o.Target.Owner, Cgroup: o.Target.Dir, Setting: o.Value.Setting(), Kernel: o.Kernel}
		if o.Err != nil {
			entry.Why = o.Err.Error()
		}
		switch {
		case o.State == keeper.Applied, o.State == keeper.Unchanged, o.State == keeper.Clipped:
			r.Restored++
		case o.RuntimeOnly(): // the value is for the agent's own container, which ends with the agent
			r.LeftToOthers = append(r.LeftToOthers, entry)
		case o.State == keeper.Refused, o.State == keeper.Ceded && errors.Is(o.Err, keeper.ErrOriginalUnknown):
			r.Failed = append(r.Failed, entry)
		case o.State == keeper.Ceded:
			r.LeftToOthers = append(r.LeftToOthers, entry)
		}
	}
	for _, list := range [][]api.NotRestored{r.LeftToOthers, r.Failed} {
		slices.SortFunc(list, func(a, b api.NotRestored) int {
			return cmp.Or(cmp.Compare(a.Cgroup, b.Cgroup), cmp.Compare(a.Setting, b.Setting))
		})
	}
	return r
}

// restoreEarlier restores the originals of values that an earlier agent wrote for live pods and containers, and that
// this agent does not set. It also removes cpuset partitions of unknown pods and containers. If the runtime cannot
// describe a pod or container, its values stay. When the runtime describes it, the conductor calls restoreEarlier
// again.
func (c *Conductor) restoreEarlier(w *work) {
	c.recoverPanic(w, func() {
		out := c.keeper.ReleaseForgotten(func(owner string) (known, undecided bool) {
			c.node.mu.Lock()
			defer c.node.mu.Unlock()
			return c.node.state.IsLive(owner)
		})
		for _, o := range out {
			if o.Err != nil {
				c.log.Warn("the agent cannot restore the original value of a setting that an earlier agent changed", append(c.reports.OwnerAttrs(o.Target.Owner), logkey.Field, o.Value.Field.String(), logkey.Err, o.Err)...)
			}
		}
	})
}

// cgroupDirs lists the cgroups of all pods and containers that have a usable cgroup path.
func (n *node) cgroupDirs() (out []string) {
	for _, id := range n.state.Pods() {
		if dir, err := cgroup.PodPath(n.state.Pod(id).Pod.CgroupParent); err == nil {
			out = append(out, dir)
		}
	}
	for _, id := range n.state.Containers() {
		if target, err := n.target(n.state.Container(id)); err == nil {
			out = append(out, target.Dir)
		}
	}
	return out
}

// checkEarlierAgent tells the keeper if an earlier agent wrote to the kernel. There was an earlier agent if a container
// has a record, or if the key for records is not new. Only the first Synchronize makes this check.
func (c *Conductor) checkEarlierAgent(records map[string]engine.Record) {
	if c.earlierAgentChecked {
		return
	}
	c.earlierAgentChecked = true
	if (len(records) > 0 || c.hasEarlierKey) && c.keeper.Originals.NoteEarlierKeeper(c.node.cgroupDirs()) {
		c.log.Warn("an earlier agent wrote to the kernel, and its file of original values is missing (paths.state): " +
			"the agent cannot restore values that the runtime does not report")
	}
}
