package conductor

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// Watcher tells of writes to files in directories of the cgroup tree, named as
// cgroup.FS names them. A directory that goes is watched no longer.
type Watcher interface {
	Add(dir string) error
	Remove(dir string)
	// Written are files; "" says that some are missing.
	Written() <-chan string
}

// A write is answered when nothing more was written to that owner's cgroups for
// a while, or did not stop: an OCI runtime writes a cgroup's files one after
// another, and is not to be met half-way. Both leave room within a second.
const (
	calm     = 250 * time.Millisecond
	mostCalm = 700 * time.Millisecond
)

// Without a watcher's word files are looked at in turn: all of them in slowRound
// where somebody watches, for writers whose mount of the tree nobody can watch
// and for what the kernel changes by itself; else as many at each look as half a
// percent of one processor buys. To wake up costs as much as several files, so
// where somebody watches many are looked at together.
const (
	lookEvery = 250 * time.Millisecond
	slowEvery = 5 * time.Second
	slowRound = 2 * time.Minute
	perLook   = 75 // at 15 µs a file, as measured on a virtual machine
)

// What cannot be put right is tried again, less and less often: some times, and for
// ever where it keeps containers apart.
const (
	firstRetry = time.Second
	mostTries  = 8
)

// drifter is an owner whose values differ from what the kernel has.
type drifter struct {
	first, due time.Time
	tries      int // that failed
}

// guard is the work of Watch.
type guardian struct {
	c       *Conductor
	watch   Watcher
	blind   bool // there is no watcher, or it cannot watch all
	waiting map[string]drifter
	retried time.Time // when what the kernel refused was last written again
}

// Watch finds values that others change in the kernel and puts them right, until
// ctx ends. Without a watcher it looks at all files in turn.
func (c *Conductor) Watch(ctx context.Context, w Watcher) error {
	g := &guardian{c: c, watch: w, blind: w == nil, waiting: map[string]drifter{}, retried: c.now()}
	var written <-chan string
	if w != nil {
		written = w.Written()
	}
	look := time.NewTimer(g.pause())
	defer look.Stop()
	due := time.NewTimer(0)
	defer due.Stop()
	for {
		var owners []string
		select {
		case <-ctx.Done():
			return nil
		case <-c.keeper.Changed():
			seeing := !g.blind
			if owners = g.directories(); g.blind && seeing {
				look.Reset(g.pause())
			}
		case file := <-written:
			if file == "" {
				owners = c.keeper.Sweep(c.keeper.Files())
			} else {
				owners = c.keeper.Look(file)
			}
		case <-look.C:
			owners = append(c.keeper.Sweep(g.share()), g.failed()...)
			if now := c.now(); now.Sub(g.retried) >= retryRefused {
				g.retried = now
				c.retryRefused()
			}
			look.Reset(g.pause())
		case <-due.C:
			g.repair(c.now())
		}
		g.note(owners, c.now())
		if next, some := g.next(); some {
			due.Reset(next.Sub(c.now()))
		}
	}
}

// pause is how long nothing is looked at.
func (g *guardian) pause() time.Duration {
	if g.blind {
		return lookEvery
	}
	return slowEvery
}

// next is when the first owner is due.
func (g *guardian) next() (at time.Time, some bool) {
	for _, d := range g.waiting {
		if !some || d.due.Before(at) {
			at, some = d.due, true
		}
	}
	return at, some
}

// share is how many files are looked at now.
func (g *guardian) share() int {
	if g.blind {
		return perLook
	}
	const rounds = int(slowRound / slowEvery)
	return (g.c.keeper.Files() + rounds - 1) / rounds
}

// directories watches what came and no longer what went. It returns whose values
// were changed before somebody watched.
func (g *guardian) directories() (owners []string) {
	fresh, stale := g.c.keeper.Directories()
	if g.watch == nil {
		return nil
	}
	for _, dir := range stale {
		g.watch.Remove(dir)
	}
	for _, dir := range fresh {
		err := g.watch.Add(dir)
		owners = append(owners, g.c.keeper.LookIn(dir)...)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if !g.blind {
			g.c.log.Warn("cgroup files cannot all be watched; they are looked at in turn", logkey.File, dir, logkey.Err, err)
		}
		g.blind = true
	}
	return owners
}

// failed are owners of values that the kernel refused for a reason that may have
// passed, and that do not wait for another try already.
func (g *guardian) failed() []string {
	return slices.DeleteFunc(g.c.keeper.Failed(), func(owner string) bool { _, waits := g.waiting[owner]; return waits })
}

// note has owners put right once their cgroups are calm.
func (g *guardian) note(owners []string, now time.Time) {
	for _, owner := range owners {
		d, known := g.waiting[owner]
		if !known {
			d.first = now
			g.c.askAbout(owner)
		}
		if d.tries == 0 {
			d.due = now.Add(min(calm, max(0, mostCalm-now.Sub(d.first))))
		}
		g.waiting[owner] = d
	}
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

// repair puts right whose time has come.
func (g *guardian) repair(now time.Time) { //nolint:gocognit // one case after the other; to be cut with the rest of the heart
	var due []string
	for owner, d := range g.waiting {
		if !now.Before(d.due) {
			due = append(due, owner)
		}
	}
	if len(due) == 0 {
		return
	}
	slices.Sort(due)
	refused, apart := map[string]bool{}, map[string]bool{}
	for _, o := range g.c.repair(due) {
		if o.State == keeper.Refused {
			refused[o.Target.Owner] = true
			apart[o.Target.Owner] = apart[o.Target.Owner] || o.KeepsApart()
		}
	}
	failed := g.c.keeper.Failed()
	for _, owner := range due {
		d := g.waiting[owner]
		if refused[owner] {
			d.tries = min(d.tries+1, mostTries)
			d.due = now.Add(firstRetry << (d.tries - 1))
		} else {
			d.tries = 0
		}
		at, contested := g.c.keeper.Due(owner)
		if contested && (!refused[owner] || at.Before(d.due)) {
			d.due = at
		}
		if d.first = now; contested || refused[owner] && (d.tries < mostTries || apart[owner] || slices.Contains(failed, owner)) {
			g.waiting[owner] = d
			continue
		}
		delete(g.waiting, owner)
	}
}

// retryRefused is how often values that the kernel refused are written again.
const retryRefused = 2 * time.Minute

// retryRefused writes again what the kernel refused: a value may have been refused
// for another that is gone by now, as a pod's quota for a container's.
func (c *Conductor) retryRefused() {
	owners := c.keeper.Refused()
	if len(owners) == 0 {
		return
	}
	c.takeTurn()
	defer c.turn.Unlock()
	w := &work{ev: &lifecycle.Event{Kind: lifecycle.Configure}}
	_ = c.guard(w, func() error {
		for _, owner := range owners {
			w.wrote = append(w.wrote, c.keeper.Settle(owner)...)
		}
		c.confirm(w)
		return nil
	})
}

// repair writes again what others have undone, and tells of it.
func (c *Conductor) repair(owners []string) []keeper.Outcome {
	c.takeTurn()
	defer c.turn.Unlock()
	w := &work{ev: &lifecycle.Event{Kind: lifecycle.Configure}}
	_ = c.guard(w, func() error {
		for _, o := range c.keeper.Repair(owners...) {
			if o.State != keeper.Same || c.isMissing(o) {
				w.wrote = append(w.wrote, o)
			}
		}
		c.confirm(w)
		return nil
	})
	for _, o := range w.wrote {
		c.tellRepair(o)
	}
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
