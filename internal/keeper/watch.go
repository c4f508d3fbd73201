package keeper

import (
	"errors"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// Fight says when somebody who writes a file again and again is let have it.
type Fight struct {
	// Limit is how often one file is put right within Per before it is left
	// alone, or, where it keeps containers apart, written again less often; 0 is for
	// ever, and at once.
	Limit int
	Per   time.Duration
}

// ErrFight is why a value is left alone: somebody else writes it again and
// again.
var ErrFight = errors.New("somebody else writes it again and again")

// watched is what the keeper knows of files others may write.
type watched struct {
	// now is the time, nil where nobody watches.
	now   func() time.Time
	fight Fight
	// files are the values in force, by file; quota and period may share one.
	files map[string][]*row
	// dirs are the same by directory. fresh and stale are directories
	// that came and went since Directories was last asked.
	dirs         map[string][]*row
	fresh, stale map[string]bool
	changed      chan struct{}
	// rounds is what a Sweep still has to look at.
	rounds []string
}

// Watchful has the keeper take note of which files hold its values, and of who
// fights for them. It is called before the keeper is used.
func (k *Keeper) Watchful(now func() time.Time) {
	k.now = now
	k.files, k.dirs = map[string][]*row{}, map[string][]*row{}
	k.fresh, k.stale = map[string]bool{}, map[string]bool{}
	k.changed = make(chan struct{}, 1)
}

// SetFight changes when files are left alone, and takes up all that were.
func (k *Keeper) SetFight(f Fight) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fight == f {
		return
	}
	k.fight = f
	for _, r := range k.rows {
		if errors.Is(r.left, ErrFight) {
			r.left, r.foreign.n = nil, 0
		}
		r.foreign.pause = 0
	}
}

// Directories returns the directories of files with values in force that came,
// and those that went, since it was last asked.
func (k *Keeper) Directories() (fresh, stale []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	fresh, stale = slices.Sorted(maps.Keys(k.fresh)), slices.Sorted(maps.Keys(k.stale))
	clear(k.fresh)
	clear(k.stale)
	return fresh, stale
}

// noteFileLocked takes note of the file of a value in force.
func (k *Keeper) noteFileLocked(r *row) {
	if k.now == nil || r.file != "" {
		return
	}
	r.file = k.file(r.place)
	k.files[r.file] = append(k.files[r.file], r)
	dir := path.Dir(r.file)
	if k.dirs[dir] = append(k.dirs[dir], r); len(k.dirs[dir]) == 1 {
		if k.stale[dir] {
			delete(k.stale, dir)
		} else {
			k.fresh[dir] = true
		}
		k.wake()
	}
}

// dropFileLocked ends that.
func (k *Keeper) dropFileLocked(r *row) {
	if r.file == "" {
		return
	}
	without(k.files, r.file, r)
	dir := path.Dir(r.file)
	if without(k.dirs, dir, r); len(k.dirs[dir]) == 0 {
		if k.fresh[dir] {
			delete(k.fresh, dir)
		} else {
			k.stale[dir] = true
		}
		k.wake()
	}
	r.file = ""
}

// without takes a row out of one of many lists, which is not changed: others
// may be reading it.
func without(lists map[string][]*row, key string, r *row) {
	rest := slices.DeleteFunc(slices.Clone(lists[key]), func(o *row) bool { return o == r })
	if len(rest) == 0 {
		delete(lists, key)
		return
	}
	lists[key] = rest
}

func (k *Keeper) wake() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// Look compares one file, as a watcher names it, with what was last found in
// force there. It returns the owners whose values differ.
func (k *Keeper) Look(file string) []string {
	k.mu.Lock()
	rows := k.files[file]
	k.mu.Unlock()
	return k.differing(rows)
}

// LookIn is Look of all files of a directory.
func (k *Keeper) LookIn(dir string) []string {
	k.mu.Lock()
	rows := k.dirs[dir]
	k.mu.Unlock()
	return k.differing(rows)
}

func (k *Keeper) differing(rows []*row) []string {
	var owners []string
	for _, r := range rows {
		if owner, differs := k.differsNow(r); differs && !slices.Contains(owners, owner) {
			owners = append(owners, owner)
		}
	}
	return owners
}

func (k *Keeper) differsNow(r *row) (owner string, differs bool) {
	text, err := k.tree.Read(r.dir, r.field, r.key)
	k.mu.Lock()
	defer k.mu.Unlock()
	// A cgroup that is gone is somebody else's news, and what cannot be read is
	// told by who settles it.
	if err != nil && cgroup.Gone(err) || !r.verified || r.left != nil {
		return "", false
	}
	if _, paused := k.pausedLocked(r); paused {
		return "", false // it is put right when it is due
	}
	return r.target.Owner, err != nil || !cgroup.Same(r.field, r.key, text, r.kernel)
}

// Sweep looks at some of the files, where it left off, and returns the owners
// whose values differ. After as many calls as it takes it has seen all.
func (k *Keeper) Sweep(some int) []string {
	k.mu.Lock()
	if len(k.rounds) == 0 || some >= len(k.files) {
		k.rounds = slices.Sorted(maps.Keys(k.files))
	}
	some = min(some, len(k.rounds))
	files := k.rounds[:some]
	k.rounds = k.rounds[some:]
	k.mu.Unlock()
	var owners []string
	for _, file := range files {
		owners = append(owners, k.Look(file)...)
	}
	return owners
}

// Refused lists the owners of values that the kernel refused last. What stood in
// their way may be gone by now, and nobody notifies us of that.
func (k *Keeper) Refused() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	owners := map[string]bool{}
	for _, r := range k.rows {
		if r.state == Refused && r.left == nil {
			owners[r.target.Owner] = true
		}
	}
	return slices.Sorted(maps.Keys(owners))
}

// Files returns how many files hold values.
func (k *Keeper) Files() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.files)
}
