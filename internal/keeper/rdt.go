package keeper

import (
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/resctrl"
)

// RDT is the actor of the fields RDTSchemata, RDTGroup and RDTMonitor.
type RDT struct{ Groups *resctrl.Groups }

// Act makes a resctrl group and writes the group's schemata, or moves a cgroup's threads into a group. If the text of
// the value is empty, Act removes the owner or the threads from the group again.
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

// joinState returns the state of a value that an actor has set for threads. found means that there was at least one
// thread. changed means that at least one thread did not have the value before.
func joinState(found, changed bool, err error) (State, error) {
	switch {
	case !found && err == nil:
		return Pending, nil
	case changed:
		return Applied, err
	}
	return Unchanged, err
}

// Forget removes an owner from all resctrl groups, and removes the groups that then have no owner.
func (r RDT) Forget(owner string) error { return r.Groups.RemoveOwnerFromAll(owner) }

// Tidy removes resctrl groups that earlier runs of the agent left.
func (r RDT) Tidy() error { return r.Groups.RemoveUnownedGroups() }
