package conductor

import (
	"strings"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// presence is what is known of the cgroups of pods and containers: which were seen by
// this agent, and which containers run without one. That a cgroup is absent ends
// nobody by itself: the tree may be the wrong one (cgroup.root, another cgroup
// namespace's). It takes a second witness: it was there, or the runtime reports the end.
type presence struct {
	seen map[string]bool // by sandbox or container id
	// absent are containers that the runtime says run, and their pods, by the time
	// since when no cgroup of theirs was found.
	absent map[string]time.Duration
	// faults are those that two sweeps did not find, with their directories: a start,
	// or an end, may have been under way at the first one.
	faults map[string]string
	told   time.Duration // when the log named them last
	named  bool          // it did
}

func newPresence() presence {
	return presence{seen: map[string]bool{}, absent: map[string]time.Duration{}, faults: map[string]string{}}
}

const (
	// remindAbsent is how often the log names containers without a cgroup.
	remindAbsent = 5 * time.Minute
	// mostAbsent bounds those that are named.
	mostAbsent = 20
)

// seePod notes that a pod's cgroup exists.
func (c *Conductor) seePod(p *lifecycle.Pod) {
	c.mu.Lock()
	known := c.presence.seen[p.ID]
	c.mu.Unlock()
	dir, err := cgroup.PodPath(p.CgroupParent)
	if known || err != nil || !c.keeper.Tree().Has(dir) {
		return
	}
	c.mu.Lock()
	c.presence.seen[p.ID] = true
	c.mu.Unlock()
}

// vanished reports whether a pod's cgroup was there and is gone.
func (c *Conductor) vanished(id, parent string) bool {
	dir, err := cgroup.PodPath(parent)
	if err != nil || !c.keeper.Tree().Gone(dir) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.presence.seen[id]
}

// findCgroups looks for the cgroups that were not seen yet: those of owners' pods and of
// containers that run. What was seen is not looked for again.
func (c *Conductor) findCgroups() {
	wanted := c.unseen()
	found := map[string]bool{}
	for id, dir := range wanted {
		found[id] = c.keeper.Tree().Has(dir)
	}
	now := c.uptime()
	c.mu.Lock()
	pr := &c.presence
	for id, dir := range wanted {
		since, absent := pr.absent[id]
		switch {
		case found[id]:
			pr.seen[id] = true
			delete(pr.absent, id)
			delete(pr.faults, id)
		case !absent:
			pr.absent[id] = now
		case now-since >= c.sweepEvery:
			pr.faults[id] = dir
		}
	}
	v := c.viewLocked()
	text := v.WithoutCgroup(mostAbsent)
	tell := len(text) > 0 && (!pr.named || now-pr.told >= remindAbsent)
	over := len(text) == 0 && pr.named
	pr.named = len(text) > 0
	if tell {
		pr.told = now
	}
	c.mu.Unlock()
	switch {
	case tell:
		c.log.Error("containers run without a cgroup in this tree: nothing is in force for them; see cgroup.root", logkey.Container, strings.Join(text, ", "))
	case over:
		c.log.Info("every container that runs has a cgroup again")
	}
}

// unseen are the directories to look for, by sandbox or container id. What has ended is
// forgotten.
func (c *Conductor) unseen() map[string]string { //nolint:gocognit // one case after the other; to be cut with the rest of the heart
	c.mu.Lock()
	defer c.mu.Unlock()
	pr := &c.presence
	for id := range pr.seen {
		if c.state.Container(id) == nil && c.state.Pod(id) == nil {
			delete(pr.seen, id)
		}
	}
	out := map[string]string{}
	for _, p := range c.state.Owners() {
		if dir, err := cgroup.PodPath(p.Pod.CgroupParent); err == nil && !pr.seen[p.Pod.ID] {
			out[p.Pod.ID] = dir
		}
	}
	for _, id := range c.state.Containers() {
		ctr := c.state.Container(id)
		if pr.seen[id] || !ctr.Runs() {
			continue
		}
		if p := c.state.Pod(ctr.PodID); p != nil && !pr.seen[ctr.PodID] {
			if dir, err := cgroup.PodPath(p.Pod.CgroupParent); err == nil {
				out[ctr.PodID] = dir
			}
		}
		if at, err := c.target(ctr); err == nil { // else that is reported
			out[id] = at.Dir
		}
	}
	for id := range pr.absent {
		if _, wanted := out[id]; !wanted {
			delete(pr.absent, id)
			delete(pr.faults, id)
		}
	}
	return out
}
