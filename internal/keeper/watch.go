package keeper

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// ConflictLimit sets when the keeper leaves a file to another program that writes the file repeatedly.
type ConflictLimit struct {
	// MaxRepairs is a number of repairs of one file within the time Window. After so many repairs, the keeper leaves
	// the file to the other program. The keeper never leaves a cpuset file: after so many repairs, it writes a cpuset
	// file less often. 0 means that the keeper repairs each file at once and without limit.
	MaxRepairs int
	Window     time.Duration
}

// ErrConflict is the reason why the keeper leaves a file to another program: that program writes the file
// repeatedly.
var ErrConflict = errors.New("another program writes the file repeatedly")

// ErrContested is the reason why the keeper writes a cpuset file less often: another program changes the file
// repeatedly, and the keeper never leaves a cpuset file to another program.
var ErrContested = errors.New("another program changes the file repeatedly")

// If another program changes a cpuset file repeatedly, the keeper repairs the file after a pause. The pause doubles
// up to longestPause. During the pause, containers may use each other's CPUs.
const (
	firstPause   = time.Second
	longestPause = 10 * time.Second
)

// foreignWrites counts the writes of other programs to a row's file.
type foreignWrites struct {
	indexed      bool          // watchedFiles has the row, because the row's value is in force
	writes       uint64        // writes of other programs that the keeper has repaired
	windowStart  time.Time     // the start of the time window in which windowWrites counts
	windowWrites int           // writes of other programs that the keeper has repaired in the time window
	lastRepair   time.Time     // the time of the last repair
	pause        time.Duration // the pause before the next repair; 0 means no pause
}

// watchedFiles tracks the files with values in force, and limits how often the keeper repairs them.
type watchedFiles struct {
	now func() time.Time // the clock (see Keeper.SetClock)

	mu    *sync.Mutex // the keeper's lock; it guards limit, files, dirs and dirChanges
	limit ConflictLimit
	// files has the rows with values in force, by file. In cgroup version 2, quota and period share a file.
	// dirs has the same rows by directory.
	files, dirs index
	// dirChanges are the directories that were added to dirs or removed from dirs after the last call of
	// changedDirs. Each change also sends on the channel changed.
	dirChanges map[string]bool
	changed    chan struct{} // see dirChanges
}

// SetClock sets the clock that times the writes of other programs. Call it before the keeper is used.
func (k *Keeper) SetClock(now func() time.Time) { k.watched.now = now }

// SetConflictLimit changes the limit. If the new limit differs from the old limit, the keeper again writes all files
// that it had left to other programs because of conflicts.
func (k *Keeper) SetConflictLimit(f ConflictLimit) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.watched.limit == f {
		return
	}
	k.watched.limit = f
	for _, r := range k.table.rows {
		if errors.Is(r.cededReason, ErrConflict) {
			r.cededReason, r.foreign.windowWrites = nil, 0
		}
		r.foreign.pause = 0
	}
}

// setWatched adds a row to the watched files if the row's value is in force, and otherwise removes it.
func (w *watchedFiles) setWatched(r *row, inForce bool) {
	if r.foreign.indexed == inForce {
		return
	}
	r.foreign.indexed = inForce
	change, dir := index.remove, path.Dir(r.handle.Path)
	if inForce {
		change = index.add
	}
	change(w.files, r.handle.Path, r)
	had := len(w.dirs[dir]) > 0
	if change(w.dirs, dir, r); had == (len(w.dirs[dir]) > 0) {
		return
	}
	if w.dirChanges[dir] = !w.dirChanges[dir]; !w.dirChanges[dir] {
		delete(w.dirChanges, dir) // no change since the last call of changedDirs
	}
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// changedDirs returns the directories that have values in force now and had none at the last call (fresh), and the
// directories for which the opposite is true (stale).
func (w *watchedFiles) changedDirs() (fresh, stale []string) {
	for _, dir := range slices.Sorted(maps.Keys(w.dirChanges)) {
		if len(w.dirs[dir]) > 0 {
			fresh = append(fresh, dir)
		} else {
			stale = append(stale, dir)
		}
	}
	clear(w.dirChanges)
	return fresh, stale
}

// countRepair counts a repair of a row's file. When the count reaches the limit, countRepair makes the keeper leave the
// file to the other program or, for a cpuset file, write the file less often.
func (w *watchedFiles) countRepair(r *row) {
	f := &r.foreign
	f.writes++
	if w.limit.MaxRepairs == 0 {
		return
	}
	now := w.now()
	if now.Sub(f.lastRepair) >= w.limit.Window {
		f.pause = 0
	}
	if now.Sub(f.windowStart) >= w.limit.Window {
		f.windowStart, f.windowWrites = now, 0
	}
	f.windowWrites++
	f.lastRepair = now
	switch cpuset := r.isCpusetFile(); {
	case cpuset && f.pause > 0:
		f.pause = min(2*f.pause, longestPause)
	case f.windowWrites < w.limit.MaxRepairs:
	case cpuset:
		f.pause = firstPause
	default:
		r.cededReason = r.handle.OpError("repair", r.text, fmt.Errorf("%w: %d times within %v; the agent leaves the file to that program", ErrConflict, f.windowWrites, now.Sub(f.windowStart).Round(time.Second)))
	}
}

// nextRepair returns the time at which the keeper may repair a row's file again. paused is false if the keeper may
// repair the file now.
func (w *watchedFiles) nextRepair(r *row) (due time.Time, paused bool) {
	if r.foreign.pause == 0 {
		return time.Time{}, false
	}
	due = r.foreign.lastRepair.Add(r.foreign.pause)
	return due, due.After(w.now())
}

// throttledReason returns the reason why the keeper writes a row's file less often, or nil if it writes the file
// without pauses.
func (w *watchedFiles) throttledReason(r *row) error {
	f := r.foreign
	if f.pause == 0 || w.now().Sub(f.lastRepair) >= w.limit.Window {
		return nil
	}
	return r.handle.OpError("repair", r.text, fmt.Errorf(
		"%w: the agent repaired the file %d times, and now pauses for %v between repairs; during the pauses, containers may use CPUs and memory nodes of other containers", ErrContested, f.writes, f.pause))
}

// ContestedFile is a cgroup file that another program has written, although the agent has a value for the file.
type ContestedFile struct {
	Owner, File string
	Writes      uint64 // the writes of other programs that the keeper has repaired
	CededReason error  // the reason why the keeper leaves the file to the other program; nil if the keeper writes the file
	// ThrottledReason is the reason why the keeper still writes the file, but less often. It is nil if the keeper
	// writes the file without pauses, or leaves the file to the other program.
	ThrottledReason error
}

// rank orders files: first the files that the keeper writes less often, then the files that it leaves to other
// programs, then all others.
func (c ContestedFile) rank() int {
	switch {
	case c.ThrottledReason != nil:
		return 0
	case c.CededReason != nil:
		return 1
	}
	return 2
}

// ContestedFiles lists at most limit files that other programs have written, sorted by rank. It also returns, by
// setting, the number of files that the keeper leaves to other programs because of conflicts (ceded), and the number of
// files that it writes less often (throttled).
func (k *Keeper) ContestedFiles(limit int) (list []ContestedFile, ceded, throttled map[string]int) {
	count := func(in *map[string]int, r *row, err error) {
		if err == nil {
			return
		}
		if *in == nil {
			*in = map[string]int{}
		}
		(*in)[r.setting()]++
	}
	k.mu.Lock()
	for _, r := range k.table.rows {
		c := ContestedFile{Owner: r.target.Owner, File: r.handle.Name(), Writes: r.foreign.writes, CededReason: r.cededReason, ThrottledReason: k.watched.throttledReason(r)}
		if errors.Is(r.cededReason, ErrConflict) {
			count(&ceded, r, r.cededReason)
		}
		count(&throttled, r, c.ThrottledReason)
		if c.Writes > 0 || c.CededReason != nil {
			list = append(list, c)
		}
	}
	k.mu.Unlock()
	slices.SortFunc(list, func(a, b ContestedFile) int {
		return cmp.Or(a.rank()-b.rank(), cmp.Compare(b.Writes, a.Writes), cmp.Compare(a.File, b.File))
	})
	return list[:min(limit, len(list))], ceded, throttled
}

// ownersOfDifferingRows reads the files of rows, and returns the owners of values that are no longer in the kernel.
func (w *watchedFiles) ownersOfDifferingRows(rows []*row) (owners []string) {
	for _, r := range rows {
		text, err := r.handle.Read()
		w.mu.Lock()
		_, paused := w.nextRepair(r)
		// The loop skips a file if its cgroup was removed, because the conductor regularly checks whether cgroups
		// exist. It also skips a file during the pause between two repairs. It returns the owner of a file that it
		// cannot read, and the repair then reports the error.
		skip := err != nil && cgroup.IsNotExist(err) || !r.verified || r.cededReason != nil || paused
		if owner := r.target.Owner; !skip && (err != nil || r.drifted(text)) && !slices.Contains(owners, owner) {
			owners = append(owners, owner)
		}
		w.mu.Unlock()
	}
	return owners
}

// DifferingOwners reads all files whose values should be in force, and returns the owners of values that are no longer
// in the kernel.
func (k *Keeper) DifferingOwners() []string {
	return k.watched.ownersOfDifferingFiles(k.watched.paths())
}

// paths returns the paths of the files that have values in force, sorted.
func (w *watchedFiles) paths() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.files))
}

// ownersOfDifferingFiles reads the given files, and returns the owners of values that are no longer in the kernel.
func (w *watchedFiles) ownersOfDifferingFiles(files []string) (owners []string) {
	for _, file := range files {
		w.mu.Lock()
		rows := w.files[file]
		w.mu.Unlock()
		owners = append(owners, w.ownersOfDifferingRows(rows)...)
	}
	return owners
}
