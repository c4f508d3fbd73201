package keeper

import (
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/resctrl"
)

// RDT is the actor of the fields RDTSchemata, RDTGroup and RDTMonitor.
type RDT struct{ Groups *resctrl.Groups }

// Act makes a group and gives it its shares, or moves a cgroup's threads into
// one. An empty text takes back what was done before.
func (r RDT) Act(t Target, v lifecycle.Value, threads func() ([]int, error)) (State, error) {
	switch {
	case v.Field == lifecycle.RDTSchemata && v.Text == "":
		return Applied, r.Groups.Leave(t.Owner, v.Key)
	case v.Field == lifecycle.RDTSchemata:
		changed, err := r.Groups.Own(t.Owner, v.Key, v.Text)
		return changedOrSame(changed), err
	case v.Field == lifecycle.RDTMonitor && v.Text == "":
		return Applied, r.Groups.Forget(t.Owner)
	}
	found, moved, err := r.Groups.Join(t.Owner, v.Text, threads)
	if !found && err == nil {
		return Pending, nil
	}
	return changedOrSame(moved), err
}

func changedOrSame(changed bool) State {
	if changed {
		return Applied
	}
	return Same
}

// Forget ends the groups an owner has.
func (r RDT) Forget(owner string) error { return r.Groups.Forget(owner) }

// Tidy removes groups of earlier runs.
func (r RDT) Tidy() error { return r.Groups.Tidy() }
