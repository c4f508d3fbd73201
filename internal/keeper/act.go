package keeper

import (
	"errors"
	"slices"
	"sync"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Actor applies values that do not belong into cgroup files: attributes of a cgroup's threads, or files in another
// kernel file system. The keeper stores these values and passes them to the actor again at each Reconcile.
type Actor interface {
	// Act applies a value and returns the result. threads returns the ids of the threads in the target's cgroup
	// and in the cgroups below it.
	Act(t Target, v lifecycle.Value, threads func() ([]int, error)) (State, error)
	// Forget undoes the values of an owner (a container or pod) that has ended.
	Forget(owner string) error
	// Tidy removes groups and files that earlier runs of the agent left for owners that no longer exist.
	Tidy() error
}

// actors has the registered actors, and the values that they should apply. All actors must be registered before the
// keeper is used.
type actors struct {
	tree    *cgroup.Tree
	byField map[lifecycle.Field]Actor
	all     []Actor

	mu           *sync.Mutex       // the keeper's lock; it guards the fields below
	counts       *Tally            // the keeper's counts
	itemsByOwner map[string][]Item // by owner, with at most one item per field and key
}

// storeItems stores those items of a batch that an actor must apply, because the actor is registered for the field of
// the item's value. The caller holds the lock.
func (a *actors) storeItems(batch []Item) {
	for _, item := range batch {
		if a.byField[item.Value.Field] == nil {
			continue
		}
		owner := item.Target.Owner
		a.itemsByOwner[owner] = append(slices.DeleteFunc(a.itemsByOwner[owner], func(o Item) bool { return o.settingKey() == item.settingKey() }), item)
	}
}

// settingKey returns the item's field and key, which together identify a setting inside one cgroup.
func (i Item) settingKey() fileKey { return fileKey{field: i.Value.Field, key: i.Value.Key} }

// RegisterActor registers an actor for fields. Call it before the keeper is used.
func (k *Keeper) RegisterActor(a Actor, fields ...lifecycle.Field) {
	k.actors.all = append(k.actors.all, a)
	for _, f := range fields {
		k.actors.byField[f] = a
	}
}

// act makes an actor apply one value. The result is Pending if the target's cgroup does not exist.
func (a *actors) act(item Item) Outcome {
	o := Outcome{Target: item.Target, Value: item.Value}
	o.State, o.Err = a.byField[item.Value.Field].Act(item.Target, item.Value, func() ([]int, error) {
		return a.tree.Threads(item.Target.Dir)
	})
	if o.Err != nil {
		o.State = Refused
		if cgroup.IsNotExist(o.Err) && item.Target.Dir != "" && !a.tree.Exists(item.Target.Dir, "cpu") {
			o.State, o.Err = Pending, nil
		}
	}
	a.count(o.State)
	return o
}

// count adds 1 to the number of values that had the result s.
func (a *actors) count(s State) {
	a.mu.Lock()
	a.counts.Results[s]++
	a.mu.Unlock()
}

// applyOwner makes the actors apply all values of one owner.
func (a *actors) applyOwner(owner string) (out []Outcome) {
	a.mu.Lock()
	items := slices.SortedFunc(slices.Values(a.itemsByOwner[owner]), func(a, b Item) int { return a.settingKey().compare(b.settingKey()) })
	a.mu.Unlock()
	for _, item := range items {
		out = append(out, a.act(item))
	}
	return out
}

// forget makes the actors undo their changes for an owner.
func (a *actors) forget(owner string) {
	a.mu.Lock()
	_, had := a.itemsByOwner[owner]
	delete(a.itemsByOwner, owner)
	a.mu.Unlock()
	for _, actor := range a.all {
		if had && actor.Forget(owner) != nil {
			a.count(Refused) // Tidy later removes what Forget could not remove
		}
	}
}

// Tidy makes the actors remove the groups and files that earlier runs of the agent left. Call it after the values
// of all live pods and containers were applied.
func (k *Keeper) Tidy() error {
	var errs []error
	for _, a := range k.actors.all {
		errs = append(errs, a.Tidy())
	}
	return errors.Join(errs...)
}
