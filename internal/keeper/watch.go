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
	// Limit is how often the keeper repairs one file within Per. After that it leaves the file
	// to the other program or, if the file keeps containers apart, writes it less often. 0
	// repairs without limit, and at once.
	Limit int
	Per   time.Duration
}

// ErrConflict is the reason for leaving a value to another program: that program writes it
// repeatedly.
var ErrConflict = errors.New("another program keeps writing it")

// ErrContested is the reason for writing a value less often: another program keeps changing it,
// and the keeper never leaves the file to that program.
var ErrContested = errors.New("another program keeps changing it")

// A list that another program keeps changing is written again after a pause, which doubles up
// to longestPause. Meanwhile containers may use each other's CPUs.
const (
	firstPause   = time.Second
	longestPause = 10 * time.Second
)

// foreignWrites counts foreign writes to a row's file.
type foreignWrites struct {
	indexed     bool // the index has the row, since its value is in force
	writes      uint64
	windowStart time.Time // start of the time window of n
	n           int
	lastRepair  time.Time     // the last repair
	pause       time.Duration // until the next repair; 0 for at once
}

// watch tracks the files with values in force, and limits how often they are repaired.
type watch struct {
	now func() time.Time

	mu    *sync.Mutex // the keeper's lock; it guards the fields below
	limit ConflictLimit
	// files are the values in force, by file; quota and period may share a file. dirs are the
	// same values by directory.
	files, dirs index
	// dirChanges are directories that appeared or disappeared since the last call of
	// changedDirs; changed signals them.
	dirChanges map[string]bool
	changed    chan struct{}
}

// SetClock sets the clock that times foreign writes. It is called before the keeper is used.
func (k *Keeper) SetClock(now func() time.Time) { k.watch.now = now }

// SetConflictLimit changes the limit. If it differs from the old one, the keeper manages again all files that it had
// left to other programs.
func (k *Keeper) SetConflictLimit(f ConflictLimit) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.watch.limit == f {
		return
	}
	k.watch.limit = f
	for _, r := range k.table.rows {
		if errors.Is(r.ceded, ErrConflict) {
			r.ceded, r.foreign.n = nil, 0
		}
		r.foreign.pause = 0
	}
}

// set starts to watch a row's file if its value is in force, and stops otherwise.
func (w *watch) set(r *row, inForce bool) {
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

// changedDirs returns the directories with values in force that appeared, and those that
// disappeared, since the last call.
func (w *watch) changedDirs() (fresh, stale []string) {
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

// conflict counts a repair of a row's file. Above the limit the file is left to the other
// program, or, if it keeps containers apart, written less often.
func (w *watch) conflict(r *row) {
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
		f.windowStart, f.n = now, 0
	}
	f.n++
	f.lastRepair = now
	switch apart := r.keepsApart(); {
	case apart && f.pause > 0:
		f.pause = min(2*f.pause, longestPause)
	case f.n < w.limit.Limit:
	case apart:
		f.pause = firstPause
	default:
		r.ceded = r.handle.OpError("keep", r.text, fmt.Errorf("%w: %d times within %v; the agent leaves it to that program", ErrConflict, f.n, now.Sub(f.windowStart).Round(time.Second)))
	}
}

// paused returns the time at which a row's file may be written again, if that is in the future.
func (w *watch) paused(r *row) (due time.Time, paused bool) {
	if r.foreign.pause == 0 {
		return time.Time{}, false
	}
	due = r.foreign.lastRepair.Add(r.foreign.pause)
	return due, due.After(w.now())
}

// contested returns the reason why a row's file is written less often; nil if no program changes
// it.
func (w *watch) contested(r *row) error {
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
	Writes      uint64 // the number of repairs
	Ceded       error  // the reason why the file is left to that program; nil if it is not
	// Throttled is the reason why the file is still written, but less often; nil if the other program
	// has stopped, or the file is left to it.
	Throttled error
}

// rank orders the most contested files first.
func (c ContestedFile) rank() int {
	switch {
	case c.Throttled != nil:
		return 0
	case c.Ceded != nil:
		return 1
	}
	return 2
}

// ContestedFiles lists the files that other programs have written, the most contested first. It also
// returns, by setting, the numbers of files that are left to other programs and of files that
// are still repaired.
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
		c := ContestedFile{Owner: r.target.Owner, File: r.handle.Name(), Writes: r.foreign.writes, Ceded: r.ceded, Throttled: k.watch.contested(r)}
		if errors.Is(r.ceded, ErrConflict) {
			count(&ceded, r, r.ceded)
		}
		count(&repaired, r, c.Throttled)
		if c.Writes > 0 || c.Ceded != nil {
			list = append(list, c)
		}
	}
	k.mu.Unlock()
	slices.SortFunc(list, func(a, b ContestedFile) int {
		return cmp.Or(a.rank()-b.rank(), cmp.Compare(b.Writes, a.Writes), cmp.Compare(a.File, b.File))
	})
	return list[:min(most, len(list))], ceded, repaired
}

// differing reads the files of rows, and returns the owners whose values differ.
func (w *watch) differing(rows []*row) (owners []string) {
	for _, r := range rows {
		text, err := r.handle.Read()
		w.mu.Lock()
		_, paused := w.paused(r)
		// A missing cgroup is reported elsewhere, and a failed read by the repair. A paused
		// file is repaired when it is due.
		skip := err != nil && cgroup.IsNotExist(err) || !r.verified || r.ceded != nil || paused
		if owner := r.target.Owner; !skip && (err != nil || r.drifted(text)) && !slices.Contains(owners, owner) {
			owners = append(owners, owner)
		}
		w.mu.Unlock()
	}
	return owners
}

// DifferingOwners reads all files with values in force, and returns the owners whose values differ.
func (k *Keeper) DifferingOwners() []string { return k.watch.sweep(k.watch.all()) }

// all returns the files that hold values in force, sorted.
func (w *watch) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.files))
}

// sweep is differing for some files.
func (w *watch) sweep(files []string) (owners []string) {
	for _, file := range files {
		w.mu.Lock()
		rows := w.files[file]
		w.mu.Unlock()
		owners = append(owners, w.differing(rows)...)
	}
	return owners
}
