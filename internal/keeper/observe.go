package keeper

import (
	"maps"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Observe makes the keeper write nothing. The keeper then records desired values as if they were in force, and Compare
// reports which of them the kernel has. Call Observe before the keeper is used. actors are the fields whose values are
// not in cgroup files.
func (k *Keeper) Observe(actors ...lifecycle.Field) {
	k.observing = true
	k.RegisterActor(idleActor{}, actors...)
}

// idleActor is an actor that applies no values.
type idleActor struct{}

func (idleActor) Act(Target, lifecycle.Value, func() ([]int, error)) (State, error) {
	return Unchanged, nil
}
func (idleActor) Forget(string) error { return nil }
func (idleActor) Tidy() error         { return nil }

// observe ends jobs as if the kernel had their values. A value without a cgroup stays pending.
func observe(jobs []*job) {
	for _, j := range jobs {
		if j.done || !j.isCurrent() {
			continue
		}
		if _, err := j.row.handle.Read(); err != nil {
			j.fail(err)
			continue
		}
		j.endInForce(Unchanged, j.text)
	}
}

// Comparison is a desired value and what the kernel has.
type Comparison struct {
	Target     Target
	Value      lifecycle.Value
	Want       string // the kernel's text for the value
	KernelText string // the text in the kernel
	Same       bool   // Want and KernelText mean the same value
}

// Setting returns the name of the setting for metrics, from a limited set.
func (c *Comparison) Setting() string { return Item{Value: c.Value}.settingKey().setting() }

// Compare compares all desired values with the kernel's files. It leaves out cgroups that do
// not exist, files that it cannot read, and weights of idle cgroups, which the kernel does not show.
func (k *Keeper) Compare() []Comparison {
	k.mu.Lock()
	jobs := k.pick(maps.Values(k.table.rows), func(r *row) bool { return r.text != "" && !r.releasing })
	k.mu.Unlock()
	out := make([]Comparison, 0, len(jobs))
	for _, j := range jobs {
		has, err := j.row.handle.Read()
		if err != nil {
			continue
		}
		c := Comparison{Target: j.target, Value: j.value, Want: j.text, KernelText: has, Same: j.equalsDesired(has)}
		if has == "" && j.isList() { // an empty list means the parent's list
			if all, err := k.tree.Effective(j.dir, j.field); err == nil {
				c.KernelText, c.Same = all, j.equalsDesired(all)
			}
		}
		if !c.Same && j.isHidden(k.tree) {
			continue
		}
		out = append(out, c)
	}
	return out
}

// equalsDesired reports whether a text of the kernel means the desired value. In cgroup v2, programs convert shares to
// a weight by two formulas; both results mean the desired value.
func (j *job) equalsDesired(text string) bool {
	if j.k.tree.Version == cgroup.V2 && j.field == lifecycle.CPUShares {
		line, curve := weightText(cgroup.Weight(j.value.Int)), weightText(cgroup.RuntimeWeight(j.value.Int))
		if text == line || text == curve {
			return true
		}
	}
	return j.row.handle.Same(text, j.text)
}
