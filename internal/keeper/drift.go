package keeper

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// A repair waits until no program has written the owner's cgroups for repairDelay, but at most
// maxRepairDelay. An OCI runtime writes a cgroup's files one after another, and a repair should
// not interrupt it.
const (
	repairDelay    = 250 * time.Millisecond
	maxRepairDelay = 700 * time.Millisecond
)

// Files are also polled. With inotify, all files are read within fullRound, because some
// writers use a mount that cannot be watched, and the kernel changes some values itself.
// Without inotify, each poll reads as many files as half a percent of one processor allows. A
// wake-up costs as much as several reads, so with inotify each poll reads many files.
const (
	pollUnwatched = 250 * time.Millisecond
	pollWatched   = 5 * time.Second
	fullRound     = 2 * time.Minute
	filesPerPoll  = 75 // at 15 µs per file, as measured on a virtual machine
)

// The keeper tries again to repair a value after growing pauses: at most maxTries times, or
// without limit for a value that keeps containers apart. Apart from that, it tries again to
// write each refused value every two minutes.
const (
	firstRetry = time.Second
	maxTries   = 8
	// retryRefused is the interval between attempts to write values that the kernel refused.
	retryRefused = 2 * time.Minute
)

// Drift watches the files of values in force, and starts repairs of foreign changes. All exported fields
// except Watcher are required.
type Drift struct {
	Keeper *Keeper
	// Watcher reports writes; nil if inotify cannot be used, so that all files are polled.
	Watcher cgroup.Watcher
	// Noticed is called when values of an owner differ, before Repair is called.
	Noticed func(owner string)
	// Repair calls Keeper.Repair for the owners.
	Repair func(owners []string) []Outcome
	// Retry writes again what the kernel refused.
	Retry func()
	// Unwatched is called once, with the error of the first directory that cannot be watched.
	Unwatched func(dir string, err error)

	pollsOnly bool // there is no watcher, or it cannot watch all directories
	waiting   map[string]driftingOwner
	retried   time.Time // the time of the last Retry
	files     []string  // files that this round has yet to read
}

// driftingOwner is an owner whose values differ from the kernel's.
type driftingOwner struct {
	first, due time.Time
	tries      int // failed repairs
}

// Run watches until ctx ends.
func (d *Drift) Run(ctx context.Context) error {
	k := d.Keeper
	d.pollsOnly, d.waiting, d.retried = d.Watcher == nil, map[string]driftingOwner{}, k.watch.now()
	var notices <-chan cgroup.Notice
	if d.Watcher != nil {
		notices = d.Watcher.Notices()
	}
	poll := time.NewTimer(d.pause())
	defer poll.Stop()
	due := time.NewTimer(0)
	defer due.Stop()
	for {
		var owners []string
		select {
		case <-ctx.Done():
			return nil
		case <-k.watch.changed:
			watched := !d.pollsOnly
			if owners = d.updateWatches(); d.pollsOnly && watched {
				poll.Reset(d.pause())
			}
		case n := <-notices:
			switch n.Change {
			case cgroup.Written:
				owners = k.watch.sweep([]string{n.Path})
			case cgroup.Overflow:
				owners = k.DifferingOwners()
			}
		case <-poll.C:
			owners = append(d.sweep(), d.failed()...)
			if now := k.watch.now(); now.Sub(d.retried) >= retryRefused {
				d.retried = now
				d.Retry()
			}
			poll.Reset(d.pause())
		case <-due.C:
			d.repair(k.watch.now())
		}
		d.note(owners, k.watch.now())
		if next, some := d.nextDue(); some {
			due.Reset(next.Sub(k.watch.now()))
		}
	}
}

// pause returns the time between two polls.
func (d *Drift) pause() time.Duration {
	if d.pollsOnly {
		return pollUnwatched
	}
	return pollWatched
}

// filesPerPoll returns the number of files that one poll reads.
func (d *Drift) filesPerPoll(files int) int {
	if d.pollsOnly {
		return filesPerPoll
	}
	const rounds = int(fullRound / pollWatched)
	return (files + rounds - 1) / rounds
}

// sweep reads the next files of a round over all files, and returns the owners whose values
// differ.
func (d *Drift) sweep() []string {
	d.Keeper.mu.Lock()
	all := len(d.Keeper.watch.files)
	d.Keeper.mu.Unlock()
	some := d.filesPerPoll(all)
	if len(d.files) == 0 || some >= all {
		d.files = d.Keeper.watch.all()
	}
	some = min(some, len(d.files))
	files := d.files[:some]
	d.files = d.files[some:]
	return d.Keeper.watch.sweep(files)
}

// nextDue returns when the first owner is due.
func (d *Drift) nextDue() (at time.Time, some bool) {
	for _, w := range d.waiting {
		if !some || w.due.Before(at) {
			at, some = w.due, true
		}
	}
	return at, some
}

// updateWatches starts to watch new directories and stops to watch removed ones. It returns the
// owners whose values were changed before their directory was watched.
func (d *Drift) updateWatches() (owners []string) {
	k := d.Keeper
	k.mu.Lock()
	fresh, stale := k.watch.changedDirs()
	k.mu.Unlock()
	if d.Watcher == nil {
		return nil
	}
	for _, dir := range stale {
		d.Watcher.Remove(dir)
	}
	for _, dir := range fresh {
		err := d.Watcher.Add(dir)
		k.mu.Lock()
		rows := k.watch.dirs[dir]
		k.mu.Unlock()
		owners = append(owners, k.watch.differing(rows)...)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if !d.pollsOnly {
			d.Unwatched(dir, err)
		}
		d.pollsOnly = true
	}
	return owners
}

// failed returns the owners of values that the kernel refused for a reason that may have
// passed, and that have no other try scheduled.
func (d *Drift) failed() []string {
	return slices.DeleteFunc(d.Keeper.FailedOwners(), func(owner string) bool { _, waits := d.waiting[owner]; return waits })
}

// note schedules a repair of owners for when writes to their cgroups have stopped.
func (d *Drift) note(owners []string, now time.Time) {
	for _, owner := range owners {
		w, known := d.waiting[owner]
		if !known {
			w.first = now
			d.Noticed(owner)
		}
		if w.tries == 0 {
			w.due = now.Add(min(repairDelay, max(0, maxRepairDelay-now.Sub(w.first))))
		}
		d.waiting[owner] = w
	}
}

// repair repairs the owners that are due, and schedules those that failed.
func (d *Drift) repair(now time.Time) {
	var due []string
	for owner, w := range d.waiting {
		if !now.Before(w.due) {
			due = append(due, owner)
		}
	}
	if len(due) > 0 {
		slices.Sort(due)
		d.postpone(now, due, d.Repair(due))
	}
}

// postpone schedules the repaired owners that need another try.
func (d *Drift) postpone(now time.Time, due []string, outcomes []Outcome) {
	refusals := map[string]bool{} // the map's value is true if the file keeps containers apart
	for _, o := range outcomes {
		if o.State == Refused {
			refusals[o.Target.Owner] = refusals[o.Target.Owner] || o.KeepsApart()
		}
	}
	failed := d.Keeper.FailedOwners()
	for _, owner := range due {
		w := driftingOwner{first: now}
		apart, refused := refusals[owner]
		if refused {
			w.tries = min(d.waiting[owner].tries+1, maxTries)
			w.due = now.Add(firstRetry << (w.tries - 1))
		}
		at, contested := d.Keeper.nextRepair(owner)
		if contested && (!refused || at.Before(w.due)) {
			w.due = at
		}
		if contested || refused && (w.tries < maxTries || apart || slices.Contains(failed, owner)) {
			d.waiting[owner] = w
		} else {
			delete(d.waiting, owner)
		}
	}
}

// nextRepair returns the time at which Repair may write a contested file of an owner again, if that is
// in the future.
func (k *Keeper) nextRepair(owner string) (first time.Time, some bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.table.byOwner[owner] {
		if due, paused := k.watch.paused(r); paused && (!some || due.Before(first)) {
			first, some = due, true
		}
	}
	return first, some
}
