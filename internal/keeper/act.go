package keeper

import (
	"cmp"
	"errors"
	"slices"

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

// Use has an actor see to a field. It is called before the keeper is used.
func (k *Keeper) Use(a Actor, fields ...lifecycle.Field) {
	if k.actors == nil {
		k.actors = map[lifecycle.Field]Actor{}
	}
	k.everyActor = append(k.everyActor, a)
	for _, f := range fields {
		k.actors[f] = a
	}
}

// acted is a field and key of an owner.
type acted struct {
	field lifecycle.Field
	key   string
}

// noteActs remembers values of a batch for their actors.
func (k *Keeper) noteActs(batch []Item) {
	if len(k.actors) == 0 {
		return
	}
	for _, it := range batch {
		if k.actors[it.Value.Field] == nil {
			continue
		}
		k.mu.Lock()
		if k.acts == nil {
			k.acts = map[string]map[acted]Item{}
		}
		mine := k.acts[it.Target.Owner]
		if mine == nil {
			mine = map[acted]Item{}
			k.acts[it.Target.Owner] = mine
		}
		mine[acted{it.Value.Field, it.Value.Key}] = it
		k.mu.Unlock()
	}
}

// settleActs asks the actors for everything one owner is to have.
func (k *Keeper) settleActs(owner string) []Outcome {
	k.mu.Lock()
	items := make([]Item, 0, len(k.acts[owner]))
	for _, it := range k.acts[owner] {
		items = append(items, it)
	}
	k.mu.Unlock()
	slices.SortFunc(items, func(a, b Item) int {
		return cmp.Or(cmp.Compare(a.Value.Field, b.Value.Field), cmp.Compare(a.Value.Key, b.Value.Key))
	})
	var out []Outcome
	for _, it := range items {
		out = append(out, k.act(it))
	}
	return out
}

// act asks an actor for one value.
func (k *Keeper) act(it Item) Outcome {
	o := Outcome{Target: it.Target, Value: it.Value}
	o.State, o.Err = k.actors[it.Value.Field].Act(it.Target, it.Value, func() ([]int, error) {
		return k.tree.Threads(it.Target.Dir)
	})
	if o.Err != nil {
		o.State = Refused
		if cgroup.Gone(o.Err) && it.Target.Dir != "" && !k.tree.Exists(it.Target.Dir, "cpu") {
			o.State, o.Err = Pending, nil
		}
	}
	k.mu.Lock()
	k.results[o.State]++
	k.mu.Unlock()
	return o
}

// forgetActs ends what actors did for an owner.
func (k *Keeper) forgetActs(owner string) {
	k.mu.Lock()
	_, had := k.acts[owner]
	delete(k.acts, owner)
	k.mu.Unlock()
	if !had {
		return
	}
	for _, a := range k.everyActor {
		if a.Forget(owner) != nil {
			// What stays is found by Tidy.
			k.mu.Lock()
			k.results[Refused]++
			k.mu.Unlock()
		}
	}
}

// Tidy has actors remove what earlier runs left. It is called when everything
// that lives is known.
func (k *Keeper) Tidy() error {
	var errs []error
	for _, a := range k.everyActor {
		errs = append(errs, a.Tidy())
	}
	return errors.Join(errs...)
}
