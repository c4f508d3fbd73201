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

// ConflictLimit sets when the keeper leaves a file to another program that writes it repeatedly.
type ConflictLimit struct {
	// Limit is how often the keeper repairs one file within the time Per. After that it leaves the file to the
	// other program. It never leaves a cpuset file, and writes such a file less often instead. 0 means that the
	// keeper repairs each file at once and without limit.
	Limit int
	Per   time.Duration
}

// ErrConflict is the reason why the keeper leaves a value to another program: that program writes the value
// repeatedly.
var ErrConflict = errors.New("another program keeps writing it")

// ErrContested is the reason why the keeper writes a value less often: another program keeps changing the value, and
// the keeper never leaves a cpuset file to another program.
var ErrContested = errors.New("another program keeps changing it")

// A list that another program keeps changing is written again after a pause, which doubles up
// to longestPause. Meanwhile containers may use each other's CPUs.
const (
	firstPause   = time.Second
	longestPause = 10 * time.Second
)

// foreignWrites counts the writes of other programs to a row's file.
type foreignWrites struct {
	indexed      bool          // watchedFiles has the row, because the row's value is in force
	writes       uint64        // repaired writes since the row exists
	windowStart  time.Time     // start of the time window of windowWrites
	windowWrites int           // repaired writes in the time window
	lastRepair   time.Time     // the time of the last repair
	pause        time.Duration // the pause before the next repair; 0 for at once
}

// watchedFiles tracks the files with values in force, and limits how often the keeper repairs them.
type watchedFiles struct {
	now func() time.Time

	mu    *sync.Mutex // the keeper's lock; it guards limit, files, dirs and dirChanges
	limit ConflictLimit
	// files has the rows with values in force, by file; quota and period may share a file. dirs has the
	// same rows by directory.
	files, dirs index
	// dirChanges are the directories that were added to dirs or removed from it since the last call of
	// changedDirs. Each change also sends on the channel changed.
	dirChanges map[string]bool
	changed    chan struct{}
}

// SetClock sets the clock that times the writes of other programs. Call it before the keeper is used.
func (k *Keeper) SetClock(now func() time.Time) { k.watched.now = now }

// SetConflictLimit changes the limit. If it differs from the old one, the keeper manages again all files that it had
// left to other programs.
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

// set starts to watch a row's file if its value is in force, and stops otherwise.
func (w *watchedFiles) set(r *row, inForce bool) {
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

// changedDirs returns the directories that have values in force since the last call, and the directories that have
// none any more.
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

// countRepair counts a repair of a row's file. Above the limit, the keeper leaves the file to the other program, or
// writes a cpuset file less often.
func (w *watchedFiles) countRepair(r *row) {
	f := &r.foreign
	f.writes++
	if w.limit.Limit == 0 {
		return
	}
	now := w.now()
	if now.Sub(f.lastRepair) >= w.limit.Per {
		f.pause = 0
	}
	if now.Sub(f.windowStart) >= w.limit.Per {
		f.windowStart, f.windowWrites = now, 0
	}
	f.windowWrites++
	f.lastRepair = now
	switch cpuset := r.isCpusetFile(); {
	case cpuset && f.pause > 0:
		f.pause = min(2*f.pause, longestPause)
	case f.windowWrites < w.limit.Limit:
	case cpuset:
		f.pause = firstPause
	default:
		r.cededReason = r.handle.OpError("keep", r.text, fmt.Errorf("%w: %d times within %v; the agent leaves it to that program", ErrConflict, f.windowWrites, now.Sub(f.windowStart).Round(time.Second)))
	}
}

// nextRepair returns the time at which a row's file may be written again. paused is false if the keeper may write the
// file now.
func (w *watchedFiles) nextRepair(r *row) (due time.Time, paused bool) {
	if r.foreign.pause == 0 {
		return time.Time{}, false
	}
	due = r.foreign.lastRepair.Add(r.foreign.pause)
	return due, due.After(w.now())
}

// throttledReason returns the reason why the keeper writes a row's file less often; nil if it does not.
func (w *watchedFiles) throttledReason(r *row) error {
	f := r.foreign
	if f.pause == 0 || w.now().Sub(f.lastRepair) >= w.limit.Per {
		return nil
	}
	return r.handle.OpError("keep", r.text, fmt.Errorf(
		"%w: the agent repaired it %d times and now writes it every %v; meanwhile containers may use CPUs and memory nodes of others", ErrContested, f.writes, f.pause))
}

// ContestedFile is a file that another program writes.
type ContestedFile struct {
	Owner, File string
	Writes      uint64 // how often the keeper has repaired the file
	CededReason error  // the reason why the keeper leaves the file to the other program; nil if it does not
	// ThrottledReason is the reason why the keeper still writes the file, but less often. It is nil if the other
	// program has stopped, or the keeper leaves the file to that program.
	ThrottledReason error
}

// rank orders the most contested files first.
func (c ContestedFile) rank() int {
	switch {
	case c.ThrottledReason != nil:
		return 0
	case c.CededReason != nil:
		return 1
	}
	return 2
}

// ContestedFiles lists up to most files that other programs have written, the most contested first. It also returns, by
// setting, the number of files that the keeper leaves to other programs (ceded), and the number of files that it
// writes less often (repaired).
func (k *Keeper) ContestedFiles(most int) (list []ContestedFile, ceded, repaired map[string]int) {
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
		count(&repaired, r, c.ThrottledReason)
		if c.Writes > 0 || c.CededReason != nil {
			list = append(list, c)
		}
	}
	k.mu.Unlock()
	slices.SortFunc(list, func(a, b ContestedFile) int {
		return cmp.Or(a.rank()-b.rank(), cmp.Compare(b.Writes, a.Writes), cmp.Compare(a.File, b.File))
	})
	return list[:min(most, len(list))], ceded, repaired
}

// differing reads the files of rows, and returns the owners of values that differ from the kernel's text.
func (w *watchedFiles) differing(rows []*row) (owners []string) {
	for _, r := range rows {
		text, err := r.handle.Read()
		w.mu.Lock()
		_, paused := w.nextRepair(r)
		// A sweep of the conductor reports a missing cgroup, and the repair reports a failed read. A
		// paused file is repaired after its pause.
		skip := err != nil && cgroup.IsNotExist(err) || !r.verified || r.cededReason != nil || paused
		if owner := r.target.Owner; !skip && (err != nil || r.drifted(text)) && !slices.Contains(owners, owner) {
			owners = append(owners, owner)
		}
		w.mu.Unlock()
	}
	return owners
}

// DifferingOwners reads all files with values in force, and returns the owners whose values differ.
func (k *Keeper) DifferingOwners() []string { return k.watched.differingIn(k.watched.paths()) }

// paths returns the paths of the files that have values in force, sorted.
func (w *watchedFiles) paths() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.files))
}

// differingIn is differing for the rows of some files.
func (w *watchedFiles) differingIn(files []string) (owners []string) {
	for _, file := range files {
		w.mu.Lock()
		rows := w.files[file]
		w.mu.Unlock()
		owners = append(owners, w.differing(rows)...)
	}
	return owners
}
