package keeper

import (
	"errors"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Actor brings into force values that are no cgroup file: they are for the
// threads of a cgroup, or on another tree of the kernel's. The keeper remembers
// them and asks again whenever it settles.
type Actor interface {
	// Act brings a value into force and says what became of it. The threads are
	// those of the target's cgroup and of cgroups below it.
	Act(t Target, v lifecycle.Value, threads func() ([]int, error)) (State, error)
	// Forget ends what was done for an owner that is gone.
	Forget(owner string) error
	// Tidy removes what earlier runs left for owners nobody knows any more.
	Tidy() error
}

// actors are the actors, and what is asked of them. Keeper.mu guards wanted; the
// others are fixed before use.
type actors struct {
	of     map[lifecycle.Field]Actor
	all    []Actor
	wanted map[string]map[place]Item // by owner; places have no directory
}

// note remembers the values of a batch that are for actors.
func (a *actors) note(batch []Item) {
	for _, it := range batch {
		if a.of[it.Value.Field] == nil {
			continue
		}
		mine := a.wanted[it.Target.Owner]
		if mine == nil {
			mine = map[place]Item{}
			a.wanted[it.Target.Owner] = mine
		}
		mine[place{field: it.Value.Field, key: it.Value.Key}] = it
	}
}

// Use has an actor see to a field. It is called before the keeper is used.
func (k *Keeper) Use(a Actor, fields ...lifecycle.Field) {
	k.actors.all = append(k.actors.all, a)
	for _, f := range fields {
		k.actors.of[f] = a
	}
}

// act asks an actor for one value.
func (k *Keeper) act(it Item) Outcome {
	o := Outcome{Target: it.Target, Value: it.Value}
	o.State, o.Err = k.actors.of[it.Value.Field].Act(it.Target, it.Value, func() ([]int, error) {
		return k.tree.Threads(it.Target.Dir)
	})
	if o.Err != nil {
		o.State = Refused
		if cgroup.Gone(o.Err) && it.Target.Dir != "" && !k.tree.Exists(it.Target.Dir, "cpu") {
			o.State, o.Err = Pending, nil
		}
	}
	k.mu.Lock()
	k.counts.Results[o.State]++
	k.mu.Unlock()
	return o
}

// forgetActs ends what actors did for an owner.
func (k *Keeper) forgetActs(owner string) {
	k.mu.Lock()
	_, had := k.actors.wanted[owner]
	delete(k.actors.wanted, owner)
	k.mu.Unlock()
	if !had {
		return
	}
	for _, a := range k.actors.all {
		if a.Forget(owner) != nil {
			// What stays is found by Tidy.
			k.mu.Lock()
			k.counts.Results[Refused]++
			k.mu.Unlock()
		}
	}
}

// Tidy has actors remove what earlier runs left. It is called when everything
// that lives is known.
func (k *Keeper) Tidy() error {
	var errs []error
	for _, a := range k.actors.all {
		errs = append(errs, a.Tidy())
	}
	return errors.Join(errs...)
}
