package keeper

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

var (
	// ErrChangedSince is the reason why the keeper does not restore a value: another program has changed the value
	// after the agent's write.
	ErrChangedSince = errors.New("another program has changed it since the agent's write")
	// ErrOriginalUnknown is the reason why the keeper does not restore a value: it does not know the original.
	ErrOriginalUnknown = errors.New("the original value is not known")
	// ErrOtherTree is the reason why the keeper does not restore a value: an earlier agent wrote the value to
	// another cgroup tree.
	ErrOtherTree = errors.New("not in this cgroup tree")
)

// CedeChanged reads the file of every value in force, and leaves the values that another program has changed to that
// program. It returns these values, and writes nothing.
func (k *Keeper) CedeChanged() []Outcome {
	k.mu.Lock()
	jobs := k.pick(maps.Values(k.table.rows), func(r *row) bool { return r.verified && r.cededReason == nil })
	k.mu.Unlock()
	return outcomes(slices.DeleteFunc(jobs, func(j *job) bool {
		text, err := j.row.handle.Read()
		if err != nil || j.isHidden(k.tree) {
			return true // ReleaseAll reports the error
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		r := j.row
		if !r.drifted(text) || r.handle.Same(text, r.text) || isInvalidated(j.fileKey, text, r.text) {
			return true
		}
		r.cede(r.handle.OpError("release", r.text, fmt.Errorf("%w to %q", ErrChangedSince, text)))
		j.end(Ceded, text, r.cededReason)
		return false
	}))
}

// ReleaseAll restores every value in the table or in an earlier keeper's journal, all together in an order that the
// kernel accepts. It leaves values without a known original in the kernel, and returns them as Ceded. It also leaves
// values that another program changed, if CedeChanged was called before or an earlier keeper wrote them.
func (k *Keeper) ReleaseAll() []Outcome {
	out := k.claimRemembered(func(origin) bool { return true })
	released := k.release(func(r *row) bool {
		switch _, known := r.history.originalText(); {
		case r.releasing || r.cededReason != nil:
		case known:
			k.table.release(r, k.tree.Version)
		case r.verified:
			out = append(out, Outcome{Target: r.target, Value: r.value, State: Ceded, Kernel: r.kernel, Err: r.handle.OpError("release", r.text, ErrOriginalUnknown)})
			return false
		default: // never written
			return false
		}
		return r.text != "" || r.releasing
	})
	return append(out, released...)
}

// ReleaseForgotten restores values that an earlier keeper wrote and that have no desired value now. It restores only
// values of owners that are known and decided; other owners keep their values. Call it when all live pods and
// containers are decided.
func (k *Keeper) ReleaseForgotten(owners func(owner string) (known, undecided bool)) []Outcome {
	out := k.claimRemembered(func(o origin) bool {
		known, undecided := owners(o.Owner)
		// A partition keeps its CPUs from all other cgroups, so it is removed even if its owner
		// is unknown.
		return !undecided && (known || o.key().isPartition())
	})
	return append(out, k.release(func(r *row) bool { return r.releasing && r.state == Pending })...)
}

// release writes the originals of the rows that match. A row without a cgroup has nothing to restore, so its outcome is
// Forgotten.
func (k *Keeper) release(match func(*row) bool) []Outcome {
	out := k.sync(false, func() []*job { return k.pick(maps.Values(k.table.rows), match) })
	for i := range out {
		if out[i].State == Pending {
			out[i].State = Forgotten
		}
	}
	return out
}

// claimRemembered makes rows with their originals as desired values, for the remembered settings for which mine returns
// true. It drops settings whose value is no longer in the kernel. It returns the values that cannot be restored, with
// the reason.
func (k *Keeper) claimRemembered(mine func(origin) bool) []Outcome {
	k.mu.Lock()
	all := maps.Clone(k.Originals.remembered)
	k.mu.Unlock()
	var out []Outcome
	for at, o := range all {
		if !mine(o) {
			continue
		}
		if _, left := k.claimForRelease(at); left != nil {
			out = append(out, *left)
		}
	}
	return out
}

// claimForRelease makes a row with the original as desired value, for one remembered setting. If the value cannot be
// restored, left has the reason.
func (k *Keeper) claimForRelease(p fileKey) (claimed bool, left *Outcome) {
	at := k.tree.Resolve(p.dir, p.field, p.key)
	text, err := at.Read()
	hidden := p.isHidden(k.tree)
	if err != nil && cgroup.IsNotExist(err) && !k.tree.Has(cgroup.TopDir(p.dir)) {
		err = fmt.Errorf("%w: the tree at cgroup.root has no %s, so the value was written to another tree: set cgroup.root", ErrOtherTree, cgroup.TopDir(p.dir))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	o, still := k.Originals.remembered[p]
	target := Target{Owner: o.Owner, Dir: o.Dir, Parent: o.Parent}
	_, known := o.originalText()
	switch {
	case !still:
		return false, nil
	case err != nil && cgroup.IsNotExist(err), err == nil && !hidden && o.isOriginal(at, text):
		k.Originals.forget(p) // otherwise a later keeper that reads the journal would take the file's text for the agent's
		return false, nil
	case err != nil:
	case !hidden && !o.mayBeAgentText(at, text):
		err = fmt.Errorf("%w to %q", ErrChangedSince, text)
	case !known:
		err = ErrOriginalUnknown
	}
	if err != nil {
		value := lifecycle.Value{Field: p.field, Key: p.key}
		return false, &Outcome{Target: target, Value: value, State: Ceded, Kernel: text, Err: at.OpError("release", o.AgentText, err)}
	}
	r := k.newRowLocked(p, at, o.Owner)
	r.target, r.kernel, r.verified = target, text, true
	k.table.release(r, k.tree.Version)
	k.Originals.note(r)
	return true, nil
}

// isHidden reports whether a file does not show what was written to it, as for the weight of an
// idle cgroup.
func (p fileKey) isHidden(tree *cgroup.Tree) bool {
	if p.field != lifecycle.CPUShares {
		return false
	}
	text, err := tree.Read(p.dir, lifecycle.Unified, idleKey)
	return err == nil && text == "1"
}

// isOriginal reports whether a text in the file is the original.
func (o *origin) isOriginal(at cgroup.Handle, text string) bool {
	back, known := o.originalText()
	switch list := o.key().isList(); {
	case !known:
		return false
	case list && text == "":
		return true // the cgroup was made again: the agent never writes an empty list
	case back != "" && at.Same(o.AgentText, back) && (o.LastText == "" || !at.Same(text, o.LastText)):
		return true // the value was restored already, so the present text is not the agent's, even as a part of the list
	default:
		return (back != "" || !list) && at.Same(text, back)
	}
}

// mayBeAgentText reports whether a keeper may have written a text. The present list may be only a part of the written
// list, because cgroup version 1 or the parent removed CPUs.
func (o *origin) mayBeAgentText(at cgroup.Handle, text string) bool {
	if isInvalidated(o.key(), text, o.AgentText) || at.Same(text, o.AgentText) || o.LastText != "" && at.Same(text, o.LastText) {
		return true
	}
	if !o.key().isList() {
		return false
	}
	has, err := cgroup.ParseIDs(text)
	ours, err2 := cgroup.ParseIDs(o.AgentText)
	return errors.Join(err, err2) == nil && !has.Empty() && ours.Contains(has)
}
