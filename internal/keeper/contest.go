package keeper

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trimtab/trimtab/internal/cgroup"
)

// ErrContested is why a value is written again less often: another program keeps
// changing it, and it is not left to that program.
var ErrContested = errors.New("another program keeps changing it")

// A list that another program keeps changing is written again after a pause, which
// doubles up to the longest. So long the containers may have each other's CPUs.
const (
	firstPause   = time.Second
	longestPause = 10 * time.Second
)

// keepsApart reports whether a file keeps containers off the CPUs and memory nodes
// that others own. Such a file is never left to another program: whose list is wide
// now is no reason, as a later owner gets CPUs that it has.
func keepsApart(p place) bool { return isList(p.field) || isPartition(p) }

// KeepsApart reports whether the outcome is that of a file which is never left to
// another program.
func (o Outcome) KeepsApart() bool {
	return keepsApart(place{field: o.Value.Field, key: o.Value.Key})
}

// foreign counts what others wrote into a row's file.
type foreign struct {
	writes uint64
	since  time.Time // begin of the window n counts in
	n      int
	last   time.Time     // when it was last put right
	pause  time.Duration // until it is put right once more; 0 for at once
}

// foughtLocked counts that a row's file was put right. Once that is too often the
// file is left to the other program, or, where it keeps containers apart, written
// again less often.
func (k *Keeper) foughtLocked(r *row) {
	f := &r.foreign
	f.writes++
	if k.now == nil || k.fight.Limit == 0 {
		return
	}
	now := k.now()
	if now.Sub(f.last) >= k.fight.Per {
		f.pause = 0
	}
	if now.Sub(f.since) >= k.fight.Per {
		f.since, f.n = now, 0
	}
	f.n++
	f.last = now
	switch apart := keepsApart(r.place); {
	case apart && f.pause > 0:
		f.pause = min(2*f.pause, longestPause)
	case f.n < k.fight.Limit:
	case apart:
		f.pause = firstPause
	default:
		r.left = &cgroup.Error{Op: "keep", Path: k.file(r.place), Value: r.want, Err: fmt.Errorf(
			"%w: %d times within %v; it is left to them", ErrFight, f.n, now.Sub(f.since).Round(time.Second))}
	}
}

// pausedLocked returns when a row's file is written again, where it is not before.
func (k *Keeper) pausedLocked(r *row) (due time.Time, paused bool) {
	if k.now == nil || r.foreign.pause == 0 {
		return time.Time{}, false
	}
	due = r.foreign.last.Add(r.foreign.pause)
	return due, due.After(k.now())
}

// contestedLocked says that a row's file was changed again and again until now; nil
// where it is left in peace.
func (k *Keeper) contestedLocked(r *row) error {
	f := r.foreign
	if k.now == nil || f.pause == 0 || k.now().Sub(f.last) >= k.fight.Per {
		return nil
	}
	return &cgroup.Error{Op: "keep", Path: k.file(r.place), Value: r.want, Err: fmt.Errorf(
		"%w: it was put right %d times and is written again every %v, between which containers may use CPUs and memory nodes of others", ErrContested, f.writes, f.pause)}
}

// Due returns when Repair puts a contested file of an owner right again, where that
// is still to come.
func (k *Keeper) Due(owner string) (first time.Time, some bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.byOwner[owner] {
		if due, paused := k.pausedLocked(r); paused && (!some || due.Before(first)) {
			first, some = due, true
		}
	}
	return first, some
}

// Contested is a file somebody else writes.
type Contested struct {
	Owner, File string
	Writes      uint64 // that were put right
	Left        error  // why it is left to them; nil where it is kept
	// Kept says that it is written again, less often, as they do not stop; nil where
	// they have, or it is left to them.
	Kept error
}

// rank orders the worst first.
func (c Contested) rank() int {
	switch {
	case c.Kept != nil:
		return 0
	case c.Left != nil:
		return 1
	}
	return 2
}

// Contests lists the files that others have written, the most contested first, and
// how many are left to them, and are kept though they do not stop, by setting.
func (k *Keeper) Contests(most int) (list []Contested, left, kept map[string]int) {
	count := func(in *map[string]int, r *row) {
		if *in == nil {
			*in = map[string]int{}
		}
		(*in)[r.setting()]++
	}
	k.mu.Lock()
	for _, r := range k.rows {
		if errors.Is(r.left, ErrFight) {
			count(&left, r)
		}
		contested := k.contestedLocked(r)
		if contested != nil {
			count(&kept, r)
		}
		if r.foreign.writes > 0 || r.left != nil {
			list = append(list, Contested{Owner: r.target.Owner, File: k.file(r.place), Writes: r.foreign.writes, Left: r.left, Kept: contested})
		}
	}
	k.mu.Unlock()
	slices.SortFunc(list, func(a, b Contested) int {
		switch {
		case a.rank() != b.rank():
			return a.rank() - b.rank()
		case a.Writes != b.Writes:
			return map[bool]int{true: -1, false: 1}[a.Writes > b.Writes]
		case a.File < b.File:
			return -1
		}
		return 1
	})
	return list[:min(most, len(list))], left, kept
}
