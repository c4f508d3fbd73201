package keeper

import (
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/resctrl"
)

// RDT is the actor of the fields RDTSchemata, RDTGroup and RDTMonitor.
type RDT struct{ Groups *resctrl.Groups }

// Act makes a group and sets its shares, or moves a cgroup's threads into a group. An empty text
// undoes either.
func (r RDT) Act(t Target, v lifecycle.Value, threads func() ([]int, error)) (State, error) {
	switch {
	case v.Field == lifecycle.RDTSchemata && v.Text == "":
		return Applied, r.Groups.RemoveOwner(t.Owner, v.Key)
	case v.Field == lifecycle.RDTSchemata:
		changed, err := r.Groups.AddOwner(t.Owner, v.Key, v.Text)
		return joinState(true, changed, err)
	case v.Field == lifecycle.RDTMonitor && v.Text == "":
		return Applied, r.Groups.RemoveOwnerFromAll(t.Owner)
	}
	return joinState(r.Groups.Join(t.Owner, v.Text, threads))
}

// joinState returns the state of threads that should join a group. found reports whether any thread
// exists.
func joinState(found, changed bool, err error) (State, error) {
	switch {
	case !found && err == nil:
		return Pending, nil
	case changed:
		return Applied, err
	}
	return Unchanged, err
}

// Forget removes an owner's groups.
func (r RDT) Forget(owner string) error { return r.Groups.RemoveOwnerFromAll(owner) }

// Tidy removes groups of earlier runs.
func (r RDT) Tidy() error { return r.Groups.RemoveUnownedGroups() }
