package keeper

import (
	"errors"
	"slices"
	"sync"

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

// actors are the actors, and what is asked of them. They are fixed before use.
type actors struct {
	tree *cgroup.Tree
	of   map[lifecycle.Field]Actor
	all  []Actor

	mu     *sync.Mutex       // the keeper's; it guards the rest
	counts *Tally            // the keeper's
	wanted map[string][]Item // by owner, one of each field and key
}

// note remembers the values of a batch that are for actors. The lock is held.
func (a *actors) note(batch []Item) {
	for _, it := range batch {
		if a.of[it.Value.Field] == nil {
			continue
		}
		owner := it.Target.Owner
		a.wanted[owner] = append(slices.DeleteFunc(a.wanted[owner], func(o Item) bool { return o.kind() == it.kind() }), it)
	}
}

// kind is the place of an item of which the directory does not matter.
func (it Item) kind() place { return place{field: it.Value.Field, key: it.Value.Key} }

// Use has an actor see to a field. It is called before the keeper is used.
func (k *Keeper) Use(a Actor, fields ...lifecycle.Field) {
	k.actors.all = append(k.actors.all, a)
	for _, f := range fields {
		k.actors.of[f] = a
	}
}

// act asks an actor for one value.
func (a *actors) act(it Item) Outcome {
	o := Outcome{Target: it.Target, Value: it.Value}
	o.State, o.Err = a.of[it.Value.Field].Act(it.Target, it.Value, func() ([]int, error) {
		return a.tree.Threads(it.Target.Dir)
	})
	if o.Err != nil {
		o.State = Refused
		if cgroup.Gone(o.Err) && it.Target.Dir != "" && !a.tree.Exists(it.Target.Dir, "cpu") {
			o.State, o.Err = Pending, nil
		}
	}
	a.count(o.State)
	return o
}

// count counts what became of a value.
func (a *actors) count(s State) {
	a.mu.Lock()
	a.counts.Results[s]++
	a.mu.Unlock()
}

// ask asks the actors for everything one owner is to have.
func (a *actors) ask(owner string) (out []Outcome) {
	a.mu.Lock()
	items := slices.SortedFunc(slices.Values(a.wanted[owner]), func(a, b Item) int { return a.kind().compare(b.kind()) })
	a.mu.Unlock()
	for _, it := range items {
		out = append(out, a.act(it))
	}
	return out
}

// forget ends what actors did for an owner.
func (a *actors) forget(owner string) {
	a.mu.Lock()
	_, had := a.wanted[owner]
	delete(a.wanted, owner)
	a.mu.Unlock()
	for _, actor := range a.all {
		if had && actor.Forget(owner) != nil {
			a.count(Refused) // what stays is found by Tidy
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
