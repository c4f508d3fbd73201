package keeper

import "errors"

// errObserving is the error of ReclaimAnonymous in mode observe.
var errObserving = errors.New("the agent writes nothing in mode observe")

// ReclaimAnonymous asks the kernel to reclaim anonymous memory of a cgroup, as cgroup.Tree.ReclaimAnonymous does. The
// request sets no value, so the keeper stores and restores nothing. It may take seconds; no other write waits for it.
func (k *Keeper) ReclaimAnonymous(dir string, bytes int64) error {
	if k.observing {
		return errObserving
	}
	return k.tree.ReclaimAnonymous(dir, bytes)
}
