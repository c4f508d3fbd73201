package keeper

import "errors"

// errObserving is the error of ReclaimAnonymous in mode observe.
var errObserving = errors.New("the agent writes nothing in mode observe")

// ReclaimAnonymous requests that the kernel reclaim anonymous memory of a cgroup (see cgroup.Tree.ReclaimAnonymous).
// The request sets no value, so the keeper stores and restores nothing. The call may take seconds, but no write waits
// for it.
func (k *Keeper) ReclaimAnonymous(dir string, bytes int64) error {
	if k.observing {
		return errObserving
	}
	return k.tree.ReclaimAnonymous(dir, bytes)
}
