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

// The keeper also polls the files. With inotify, it reads all files within fullScanInterval, because some programs
// write through a mount that cannot be watched, and the kernel changes some values itself. Without inotify, each poll
// reads as many files as half a percent of one processor allows. A wake-up costs as much as several reads, so with
// inotify the polls are rare and each poll reads many files.
const (
	pollUnwatched         = 250 * time.Millisecond
	pollWatched           = 5 * time.Second
	fullScanInterval      = 2 * time.Minute
	filesPerUnwatchedPoll = 75 // at 15 µs per file, as measured on a virtual machine
)

// The keeper tries again to repair a value after growing pauses: at most maxTries times, or without limit for a cpuset
// file. In addition, it tries to write each refused value every two minutes.
const (
	firstRetry = time.Second
	maxTries   = 8
	// retryRefused is the interval between attempts to write values that the kernel refused.
	retryRefused = 2 * time.Minute
)

// Drift watches the files of values in force, and starts repairs of changes by other programs. All exported fields
// except Watcher are required.
type Drift struct {
	Keeper *Keeper
	// Watcher reports writes; nil if inotify cannot be used, so that all files are polled.
	Watcher cgroup.Watcher
	// BeforeRepair is called once when values of an owner differ, before Repair is called.
	BeforeRepair func(owner string)
	// Repair calls Keeper.Repair for the owners, and returns its outcomes.
	Repair func(owners []string) []Outcome
	// Retry writes again the values that the kernel refused.
	Retry func()
	// OnUnwatched is called once, with the error of the first directory that cannot be watched.
	OnUnwatched func(dir string, err error)

	pollsOnly      bool // there is no watcher, or it cannot watch all directories
	driftingOwners map[string]driftingOwner
	lastRetry      time.Time // the time of the last Retry
	unreadFiles    []string  // files that the present round over all files has not read yet
}

// driftingOwner is an owner whose values differ from the kernel's. first is when that was noticed, and due is when
// the next repair begins.
type driftingOwner struct {
	first, due time.Time
	tries      int // failed repairs
}

// Run watches until ctx ends.
func (d *Drift) Run(ctx context.Context) error {
	k := d.Keeper
	d.pollsOnly, d.driftingOwners, d.lastRetry = d.Watcher == nil, map[string]driftingOwner{}, k.watched.now()
	var notices <-chan cgroup.Notice
	if d.Watcher != nil {
		notices = d.Watcher.Notices()
	}
	poll := time.NewTimer(d.pollInterval())
	defer poll.Stop()
	due := time.NewTimer(0)
	defer due.Stop()
	for {
		var owners []string
		select {
		case <-ctx.Done():
			return nil
		case <-k.watched.changed:
			watched := !d.pollsOnly
			if owners = d.updateWatches(); d.pollsOnly && watched {
				poll.Reset(d.pollInterval())
			}
		case n := <-notices:
			switch n.Change {
			case cgroup.Written:
				owners = k.watched.differingIn([]string{n.Path})
			case cgroup.Overflow:
				owners = k.DifferingOwners()
			}
		case <-poll.C:
			owners = append(d.pollNextFiles(), d.unscheduledFailures()...)
			if now := k.watched.now(); now.Sub(d.lastRetry) >= retryRefused {
				d.lastRetry = now
				d.Retry()
			}
			poll.Reset(d.pollInterval())
		case <-due.C:
			d.repair(k.watched.now())
		}
		d.scheduleRepairs(owners, k.watched.now())
		if next, some := d.nextDue(); some {
			due.Reset(next.Sub(k.watched.now()))
		}
	}
}

// pollInterval returns the time between two polls.
func (d *Drift) pollInterval() time.Duration {
	if d.pollsOnly {
		return pollUnwatched
	}
	return pollWatched
}

// filesPerPoll returns the number of files that one poll reads.
func (d *Drift) filesPerPoll(files int) int {
	if d.pollsOnly {
		return filesPerUnwatchedPoll
	}
	const rounds = int(fullScanInterval / pollWatched)
	return (files + rounds - 1) / rounds
}

// pollNextFiles reads the next files of a round over all files, and returns the owners whose values differ.
func (d *Drift) pollNextFiles() []string {
	d.Keeper.mu.Lock()
	all := len(d.Keeper.watched.files)
	d.Keeper.mu.Unlock()
	some := d.filesPerPoll(all)
	if len(d.unreadFiles) == 0 || some >= all {
		d.unreadFiles = d.Keeper.watched.paths()
	}
	some = min(some, len(d.unreadFiles))
	files := d.unreadFiles[:some]
	d.unreadFiles = d.unreadFiles[some:]
	return d.Keeper.watched.differingIn(files)
}

// nextDue returns the time of the first scheduled repair. some is false if there is none.
func (d *Drift) nextDue() (at time.Time, some bool) {
	for _, w := range d.driftingOwners {
		if !some || w.due.Before(at) {
			at, some = w.due, true
		}
	}
	return at, some
}

// updateWatches starts to watch new directories and stops watching removed directories. It returns the owners whose
// values were changed before their directory was watched.
func (d *Drift) updateWatches() (owners []string) {
	k := d.Keeper
	k.mu.Lock()
	fresh, stale := k.watched.changedDirs()
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
		rows := k.watched.dirs[dir]
		k.mu.Unlock()
		owners = append(owners, k.watched.differing(rows)...)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if !d.pollsOnly {
			d.OnUnwatched(dir, err)
		}
		d.pollsOnly = true
	}
	return owners
}

// unscheduledFailures returns the owners of values that failed with a temporary error, and for which no repair is
// scheduled.
func (d *Drift) unscheduledFailures() []string {
	return slices.DeleteFunc(d.Keeper.FailedOwners(), func(owner string) bool { _, waits := d.driftingOwners[owner]; return waits })
}

// scheduleRepairs schedules a repair of each owner for the time at which writes to the owner's cgroups have stopped.
func (d *Drift) scheduleRepairs(owners []string, now time.Time) {
	for _, owner := range owners {
		w, known := d.driftingOwners[owner]
		if !known {
			w.first = now
			d.BeforeRepair(owner)
		}
		if w.tries == 0 {
			w.due = now.Add(min(repairDelay, max(0, maxRepairDelay-now.Sub(w.first))))
		}
		d.driftingOwners[owner] = w
	}
}

// repair repairs the owners that are due, and schedules those that failed.
func (d *Drift) repair(now time.Time) {
	var due []string
	for owner, w := range d.driftingOwners {
		if !now.Before(w.due) {
			due = append(due, owner)
		}
	}
	if len(due) > 0 {
		slices.Sort(due)
		d.scheduleRetries(now, due, d.Repair(due))
	}
}

// scheduleRetries schedules another repair of the owners in due that need one.
func (d *Drift) scheduleRetries(now time.Time, due []string, outcomes []Outcome) {
	refusals := map[string]bool{} // by owner: whether the kernel refused to write a cpuset file
	for _, o := range outcomes {
		if o.State == Refused {
			refusals[o.Target.Owner] = refusals[o.Target.Owner] || o.IsCpusetFile()
		}
	}
	failed := d.Keeper.FailedOwners()
	for _, owner := range due {
		w := driftingOwner{first: now}
		cpuset, refused := refusals[owner]
		if refused {
			w.tries = min(d.driftingOwners[owner].tries+1, maxTries)
			w.due = now.Add(firstRetry << (w.tries - 1))
		}
		at, contested := d.Keeper.nextRepair(owner)
		if contested && (!refused || at.Before(w.due)) {
			w.due = at
		}
		if contested || refused && (w.tries < maxTries || cpuset || slices.Contains(failed, owner)) {
			d.driftingOwners[owner] = w
		} else {
			delete(d.driftingOwners, owner)
		}
	}
}

// nextRepair returns the time at which Repair may write a contested file of an owner again. some is false if Repair
// may write all files of the owner now.
func (k *Keeper) nextRepair(owner string) (first time.Time, some bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.table.byOwner[owner] {
		if due, paused := k.watched.nextRepair(r); paused && (!some || due.Before(first)) {
			first, some = due, true
		}
	}
	return first, some
}
