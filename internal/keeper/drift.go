package keeper

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// A repair of an owner's values starts when no program has changed the values for repairDelay, and at the latest
// maxRepairDelay after the first change. An OCI runtime writes a cgroup's files one after another, and a repair
// should not interrupt the runtime.
const (
	repairDelay    = 250 * time.Millisecond
	maxRepairDelay = 700 * time.Millisecond
)

// In addition to inotify, the keeper polls the files. With inotify, it reads all files once within fullScanInterval,
// because inotify reports neither the writes through some mounts nor the changes by the kernel itself. To save wake-ups
// of the agent, these polls are rare and each poll reads many files. Without inotify, the keeper polls often, and the
// number of files per poll is such that the polls use half a percent of one processor.
const (
	pollUnwatched         = 250 * time.Millisecond
	pollWatched           = 5 * time.Second
	fullScanInterval      = 2 * time.Minute
	filesPerUnwatchedPoll = 75 // at 15 µs per file, as measured on a virtual machine
)

// If a repair fails, the keeper repeats it after growing pauses: at most maxTries times, or without limit for a cpuset
// file. In addition, the keeper tries to write each refused value every two minutes.
const (
	firstRetry = time.Second
	maxTries   = 8
	// retryRefused is the interval between attempts to write values that the kernel refused.
	retryRefused = 2 * time.Minute
)

// Drift watches the files to which the keeper has written desired values, and starts a repair when another program
// changes a value. All exported fields except Watcher are required.
type Drift struct {
	Keeper *Keeper
	// Watcher reports writes. It is nil if the agent cannot use inotify; Drift then polls all files.
	Watcher cgroup.Watcher
	// BeforeRepair is called when Drift finds that values of an owner in the kernel differ from the desired values. It
	// is called once before the repairs of the owner, however many repairs fail.
	BeforeRepair func(owner string)
	// Repair must call Keeper.Repair for these owners, and return the outcomes of that call.
	Repair func(owners []string) []Outcome
	// Retry must write again the values that the kernel refused earlier.
	Retry func()
	// OnUnwatched is called once, with the error of the first directory that cannot be watched.
	OnUnwatched func(dir string, err error)

	pollsOnly      bool // there is no watcher, or it cannot watch all directories
	driftingOwners map[string]driftingOwner
	lastRetry      time.Time // the time of the last Retry
	unreadFiles    []string  // the files that polls have still to read in the present round over all files
}

// driftingOwner is an owner for which the kernel's values differ from the desired values. The field first is the time
// at which Drift noticed the difference, and due is the time of the next repair.
type driftingOwner struct {
	first, due time.Time
	tries      int // the number of failed repairs
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
				owners = k.watched.ownersOfDifferingFiles([]string{n.Path})
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

// filesPerPoll returns the number of files that one poll reads. The parameter is the number of all files.
func (d *Drift) filesPerPoll(files int) int {
	if d.pollsOnly {
		return filesPerUnwatchedPoll
	}
	const rounds = int(fullScanInterval / pollWatched)
	return (files + rounds - 1) / rounds
}

// pollNextFiles reads the next few of all watched files, and returns the owners whose values differ from the desired
// values. When the calls have read all files, the next call begins again with the first file.
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
	return d.Keeper.watched.ownersOfDifferingFiles(files)
}

// nextDue returns the time of the earliest scheduled repair. some is false if no repair is scheduled.
func (d *Drift) nextDue() (at time.Time, some bool) {
	for _, w := range d.driftingOwners {
		if !some || w.due.Before(at) {
			at, some = w.due, true
		}
	}
	return at, some
}

// updateWatches starts to watch each directory that got its first file with a desired value since the last call. It
// stops to watch each directory that has no such file any more. It returns the owners whose values had already changed
// when the watch began.
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
		owners = append(owners, k.watched.ownersOfDifferingRows(rows)...)
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

// scheduleRepairs schedules a repair of each owner after repairDelay. If a repair is already scheduled, scheduleRepairs
// delays it, but never beyond maxRepairDelay after the first change. It does not delay a repair that follows a failed
// repair.
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

// repair repairs the owners whose repair is due, and schedules another repair of the owners whose repair failed.
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

// scheduleRetries schedules another repair of those owners in due for which the kernel refused a value, or which have a
// file that another program writes repeatedly. The parameter outcomes has the results of the last repair.
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

// nextRepair returns the earliest time at which Repair may write a contested file of an owner again. some is false if
// Repair may write all files of the owner now. A file is contested if another program writes it repeatedly.
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
