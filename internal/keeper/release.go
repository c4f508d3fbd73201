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
	ErrChangedSince = errors.New("another program has changed the file since the agent's write")
	// ErrOriginalUnknown is the reason why the keeper does not restore a value: the keeper does not know the original.
	ErrOriginalUnknown = errors.New("the original value is not known")
	// ErrOtherTree is the reason why the keeper does not restore a value: an earlier agent wrote the value to
	// another cgroup tree.
	ErrOtherTree = errors.New("the cgroup is not in the tree at cgroup.root")
)

// CedeChanged reads the file of every value in force. If another program has changed a file, the keeper leaves the file
// to that program. CedeChanged writes no file, and returns the outcomes of the files that it leaves to other programs.
func (k *Keeper) CedeChanged() []Outcome {
	k.mu.Lock()
	jobs := k.makeJobs(maps.Values(k.table.rows), func(r *row) bool { return r.verified && r.cededReason == nil })
	k.mu.Unlock()
	return outcomes(slices.DeleteFunc(jobs, func(j *job) bool {
		text, err := j.row.handle.Read()
		if err != nil || j.isHidden(k.tree) {
			return true // if the file cannot be read, ReleaseAll reports the error
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		r := j.row
		if !r.drifted(text) || r.handle.Same(text, r.text) || isInvalidated(j.fileKey, text, r.text) {
			return true
		}
		r.cede(r.handle.OpError("release", r.text, fmt.Errorf("%w: the file has %q", ErrChangedSince, text)))
		j.end(Ceded, text, r.cededReason)
		return false
	}))
}

// ReleaseAll restores every value in the table or in an earlier keeper's journal, all together in an order that the
// kernel accepts. If the original is not known, ReleaseAll leaves the value in the kernel, with the state Ceded. If
// another program has changed a value that an earlier keeper wrote, ReleaseAll also leaves that value. It checks the
// values of this keeper for such changes only if the caller has called CedeChanged before.
func (k *Keeper) ReleaseAll() []Outcome {
	out := k.claimLeftovers(func(origin) bool { return true })
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

// ReleaseForgotten restores values that an earlier keeper wrote, for settings that have no desired value now. The
// function owners returns known if the agent knows a container or pod, and undecided if the agent has not decided its
// values yet. ReleaseForgotten skips undecided owners. Of unknown owners it only ends cpuset partitions. Call it after
// the agent has decided the values of all live pods and containers.
func (k *Keeper) ReleaseForgotten(owners func(owner string) (known, undecided bool)) []Outcome {
	out := k.claimLeftovers(func(o origin) bool {
		known, undecided := owners(o.Owner)
		// No other cgroup can use the CPUs of a partition, so the partition ends even if its owner
		// is unknown.
		return !undecided && (known || o.key().isPartition())
	})
	return append(out, k.release(func(r *row) bool { return r.releasing && r.state == Pending })...)
}

// release writes the originals of the rows that match. If the cgroup of a row does not exist, the outcome is Forgotten.
func (k *Keeper) release(match func(*row) bool) []Outcome {
	out := k.runJobs(false, func() []*job { return k.makeJobs(maps.Values(k.table.rows), match) })
	for i := range out {
		if out[i].State == Pending {
			out[i].State = Forgotten
		}
	}
	return out
}

// claimLeftovers makes rows for those settings in Originals.leftovers for which match returns true. The desired value
// of each row is the original. claimLeftovers drops settings whose files have no text of the agent any more. It returns
// the values that the keeper cannot restore, with the reason.
func (k *Keeper) claimLeftovers(match func(origin) bool) []Outcome {
	k.mu.Lock()
	all := maps.Clone(k.Originals.leftovers)
	k.mu.Unlock()
	var out []Outcome
	for at, o := range all {
		if !match(o) {
			continue
		}
		if _, left := k.claimForRelease(at); left != nil {
			out = append(out, *left)
		}
	}
	return out
}

// claimForRelease makes a row for one setting in Originals.leftovers, with the original as desired value. If the keeper
// cannot restore the original, it makes no row, and left has the reason.
func (k *Keeper) claimForRelease(p fileKey) (claimed bool, left *Outcome) {
	at := k.tree.Resolve(p.dir, p.field, p.key)
	text, err := at.Read()
	hidden := p.isHidden(k.tree)
	if err != nil && cgroup.IsNotExist(err) && !k.tree.Has(cgroup.TopDir(p.dir)) {
		err = fmt.Errorf("%w: this tree has no %s, so an earlier agent wrote the value to another tree; set cgroup.root to that tree", ErrOtherTree, cgroup.TopDir(p.dir))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	o, still := k.Originals.leftovers[p]
	target := Target{Owner: o.Owner, Dir: o.Dir, Parent: o.Parent}
	_, known := o.originalText()
	switch {
	case !still:
		return false, nil
	case err != nil && cgroup.IsNotExist(err), err == nil && !hidden && o.needsNoRestore(at, text):
		k.Originals.forget(p) // a later keeper that reads the journal must not take the file's text for a text of the agent
		return false, nil
	case err != nil:
	case !hidden && !o.mayBeAgentText(at, text):
		err = fmt.Errorf("%w: the file has %q", ErrChangedSince, text)
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
	k.Originals.addLine(r)
	return true, nil
}

// isHidden reports whether a file does not show the text that was written to it. This is so for the weight of
// a cgroup whose cpu.idle is 1.
func (p fileKey) isHidden(tree *cgroup.Tree) bool {
	if p.field != lifecycle.CPUShares {
		return false
	}
	text, err := tree.Read(p.dir, lifecycle.Unified, idleKey)
	return err == nil && text == "1"
}

// needsNoRestore reports whether the file needs no restore. This is so if the present text is the original, or if the
// agent restored the original and another program has changed the file since.
func (o *origin) needsNoRestore(at cgroup.Handle, text string) bool {
	back, known := o.originalText()
	switch list := o.key().isList(); {
	case !known:
		return false
	case list && text == "":
		return true // the cgroup was made again: the agent never writes an empty list
	case back != "" && at.Same(o.AgentText, back) && (o.LastText == "" || !at.Same(text, o.LastText)):
		return true // the agent has restored the original already, so another program wrote the present text
	default:
		return (back != "" || !list) && at.Same(text, back)
	}
}

// mayBeAgentText reports whether the agent possibly wrote the present text of the file. The present list can be only a
// part of the list that the agent wrote: cgroup version 1 removes offline CPUs, and the parent possibly does not allow
// all CPUs.
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
