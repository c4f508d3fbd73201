package keeper

import (
	"errors"
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

var (
	// ErrTheirs is why a value is not given back: somebody else has changed it
	// since it was written.
	ErrTheirs = errors.New("somebody else changed it since")
	// ErrUnknown is why a value is not given back: nobody remembers what was
	// there before.
	ErrUnknown = errors.New("what was there before is not known")
)

// Release gives back the value a setting of an owner had before we wrote it. Of
// a value never written only the row goes. A refused release stays in the table,
// so that Settle tries again.
func (k *Keeper) Release(owner string, field lifecycle.Field, key string) Outcome {
	worst := Outcome{Target: Target{Owner: owner}, Value: lifecycle.Value{Field: field, Key: key}, State: Forgotten}
	for _, o := range k.release(owner, func(r *row) bool { return r.field == field && r.key == key }) {
		if worst.Target.Dir == "" || o.Err != nil {
			worst = o
		}
	}
	return worst
}

// unknownLocked reports whether a value is to be put back and nobody knows what
// was there.
func (k *Keeper) unknownLocked(it Item) bool {
	if !it.Back || !it.Untold || it.Asked != nil {
		return false
	}
	p := place{it.Target.Dir, it.Value.Field, it.Value.Key}
	if r := k.rows[p]; r != nil {
		_, known := r.back()
		return !known
	}
	o, remembered := k.remembered[p]
	return !remembered || o.Original == nil && o.Asked == nil
}

// leaveLocked leaves such a value as it is from now on.
func (k *Keeper) leaveLocked(it Item, want string) Outcome {
	p := place{it.Target.Dir, it.Value.Field, it.Value.Key}
	err := &cgroup.Error{Op: "release", Path: k.file(p), Value: want, Err: ErrUnknown}
	r := k.rows[p]
	if r != nil && !r.verified && r.kernel == "" { // never written
		k.dropLocked(r)
		return Outcome{Target: it.Target, Value: it.Value, State: Forgotten}
	}
	if r != nil {
		r.left, r.state, r.err = err, Left, err
	}
	return Outcome{Target: it.Target, Value: it.Value, State: Left, Err: err}
}

// release gives back the rows of an owner that match; those whose original
// nobody knows are dropped.
func (k *Keeper) release(owner string, match func(*row) bool) []Outcome {
	k.lists.Lock()
	k.mu.Lock()
	for _, r := range slices.Clone(k.byOwner[owner]) {
		if !match(r) {
			continue
		}
		if _, known := r.back(); !known {
			k.dropLocked(r)
			continue
		}
		k.startReleaseLocked(r)
	}
	jobs := k.jobsLocked(owner, match)
	k.mu.Unlock()
	return k.finishRelease(jobs)
}

// finishRelease writes what is given back. Keeper.lists is held, and let go.
func (k *Keeper) finishRelease(jobs []*job) []Outcome {
	k.runSets(jobs, false)
	k.lists.Unlock()
	k.runScalars(jobs)
	k.flush()
	out := outcomes(jobs)
	for i := range out {
		if out[i].State == Pending {
			out[i].State = Forgotten
		}
	}
	return out
}

func (k *Keeper) startReleaseLocked(r *row) {
	k.generation++
	r.generation, r.releasing, r.waits = k.generation, true, false
	r.want, _ = r.back()
	// The canonical value where there is one; status shows the text too.
	r.value, _ = cgroup.Decode(k.tree.Version, r.field, r.key, r.want)
}

// Yield compares every value in force with the kernel, and gives up those that
// somebody else has changed since: they are left as they are from now on. It
// returns them.
func (k *Keeper) Yield() []Outcome {
	k.mu.Lock()
	var jobs []*job
	for _, r := range k.rows {
		if r.verified && r.left == nil {
			jobs = append(jobs, newJob(r))
		}
	}
	k.mu.Unlock()
	slices.SortFunc(jobs, func(a, b *job) int { return a.place.compare(b.place) })
	var theirs []*job
	for _, j := range jobs {
		text, err := k.tree.Read(j.place.dir, j.place.field, j.place.key)
		if err != nil || k.hidden(j.place) {
			continue // releasing it says what is wrong
		}
		k.mu.Lock()
		r := j.row
		ours := spoiled(j.place, text, r.want) || cgroup.Same(j.place.field, j.place.key, text, r.kernel) || cgroup.Same(j.place.field, j.place.key, text, r.want)
		if r.verified && !ours {
			r.left = &cgroup.Error{Op: "release", Path: k.file(j.place), Value: r.want, Err: fmt.Errorf("%w to %q", ErrTheirs, text)}
			r.state, r.err = Left, r.left
			j.end(Left, text, r.left)
			theirs = append(theirs, j)
		}
		k.mu.Unlock()
	}
	return outcomes(theirs)
}

func (k *Keeper) file(p place) string {
	file, err := k.tree.File(p.dir, p.field, p.key)
	if err != nil {
		return p.dir
	}
	return file
}

// ReleaseAll gives back every value that is still in the table or that an
// earlier keeper left, all in one order the kernel accepts. What nobody knows
// the original of stays and is reported. Values somebody else changed are left
// where Yield was called before, and where an earlier keeper wrote them.
func (k *Keeper) ReleaseAll() []Outcome {
	out := k.claimRemembered(func(origin) bool { return true })
	k.lists.Lock()
	k.mu.Lock()
	var jobs []*job
	for _, r := range k.rows {
		switch _, known := r.back(); {
		case r.releasing || r.left != nil:
		case known:
			k.startReleaseLocked(r)
		case r.verified:
			out = append(out, Outcome{Target: r.target, Value: r.value, State: Left, Kernel: r.kernel, Err: &cgroup.Error{
				Op: "release", Path: k.file(r.place), Value: r.want, Err: ErrUnknown,
			}})
			continue
		default: // never written
			continue
		}
		if r.want != "" || r.releasing {
			jobs = append(jobs, newJob(r))
		}
	}
	k.mu.Unlock()
	slices.SortFunc(jobs, func(a, b *job) int { return a.place.compare(b.place) })
	return append(out, k.finishRelease(jobs)...)
}

// ReleaseForgotten gives back what an earlier keeper wrote and nobody wants any
// more, of owners that are known. It is called when all that lives is decided.
func (k *Keeper) ReleaseForgotten(known func(owner string) bool) []Outcome {
	out := k.claimRemembered(func(o origin) bool {
		// Partitions keep CPUs from everybody, whoever had them.
		return known(o.Owner) || isPartition(place{o.Dir, o.Field, o.Key})
	})
	k.lists.Lock()
	k.mu.Lock()
	var jobs []*job
	for _, r := range k.rows {
		if r.releasing && r.state == Pending {
			jobs = append(jobs, newJob(r))
		}
	}
	k.mu.Unlock()
	slices.SortFunc(jobs, func(a, b *job) int { return a.place.compare(b.place) })
	return append(out, k.finishRelease(jobs)...)
}

// claimRemembered makes rows to be released of what an earlier keeper left in
// the kernel. What is no longer there is dropped; what somebody else changed
// since, and what has no original, is returned.
func (k *Keeper) claimRemembered(mine func(origin) bool) []Outcome {
	k.mu.Lock()
	var all []origin
	for _, o := range k.remembered {
		if mine(o) {
			all = append(all, o)
		}
	}
	k.mu.Unlock()
	var out []Outcome
	for _, o := range all {
		if left := k.claim(o); left != nil {
			out = append(out, *left)
		}
	}
	return out
}

// claim makes a row of one line, to be released; the outcome says why not.
func (k *Keeper) claim(o origin) *Outcome {
	p := place{o.Dir, o.Field, o.Key}
	target := Target{Owner: o.Owner, Dir: o.Dir, Parent: o.Parent}
	text, err := k.tree.Read(p.dir, p.field, p.key)
	hidden := k.hidden(p)
	if err != nil && cgroup.Gone(err) && !k.Exists(top(o.Dir)) {
		err = fmt.Errorf("%w: the one at cgroup.root has no %s, so this was written to another: set cgroup.root", ErrOtherTree, top(o.Dir))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, still := k.remembered[p]; !still {
		return nil
	}
	left := func(err error) *Outcome {
		return &Outcome{Target: target, Value: lifecycle.Value{Field: p.field, Key: p.key}, State: Left, Kernel: text, Err: &cgroup.Error{
			Op: "release", Path: k.file(p), Value: o.Ours, Err: err,
		}}
	}
	r := &row{place: p}
	r.take(o)
	back, known := r.back()
	isBack := known && (back != "" || !isList(p.field)) && cgroup.Same(p.field, p.key, text, back)
	if known && isList(p.field) && text == "" {
		isBack = true // of a cgroup made since: an empty list is never ours
	}
	if known && back != "" && cgroup.Same(p.field, p.key, o.Ours, back) && (o.Was == "" || !cgroup.Same(p.field, p.key, text, o.Was)) {
		isBack = true // it was given back already: what is there since is not ours, a part of the list too
	}
	switch {
	case err != nil && cgroup.Gone(err), err == nil && isBack && !hidden:
		delete(k.remembered, p)
		k.tellGoneLocked(p) // or the next to read the journal takes what is there by then for ours
		return nil
	case err != nil:
		return left(err)
	case !hidden && !k.mayBeOurs(o, text):
		return left(fmt.Errorf("%w to %q", ErrTheirs, text))
	case !known:
		return left(ErrUnknown)
	}
	r = k.newRowLocked(p)
	k.byOwner[o.Owner] = append(k.byOwner[o.Owner], r)
	r.target, r.kernel, r.verified = target, text, true
	k.startReleaseLocked(r)
	r.state = Pending
	k.noteLocked(r)
	return nil
}

// hidden reports whether a file shows something else than was written to it: the
// weight of a cgroup that is idle.
func (k *Keeper) hidden(p place) bool {
	if p.field != lifecycle.CPUShares {
		return false
	}
	text, err := k.tree.Read(p.dir, lifecycle.Unified, idleKey)
	return err == nil && text == "1"
}

// mayBeOurs reports whether a text is what a keeper wrote. Of a list version 1
// or the parent may have taken a part; of shares there are two images.
func (k *Keeper) mayBeOurs(o origin, text string) bool {
	if spoiled(place{o.Dir, o.Field, o.Key}, text, o.Ours) || cgroup.Same(o.Field, o.Key, text, o.Ours) || o.Was != "" && cgroup.Same(o.Field, o.Key, text, o.Was) {
		return true
	}
	if !isList(o.Field) {
		return false
	}
	has, err := cgroup.ParseIDs(text)
	ours, err2 := cgroup.ParseIDs(o.Ours)
	return errors.Join(err, err2) == nil && !has.Empty() && ours.Contains(has)
}
