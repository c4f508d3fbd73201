package keeper

import (
	"maps"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Observe makes the keeper write nothing. The keeper then records desired values as if they were in force, and Compare
// reports which of these values the kernel has. Call Observe before the keeper is used. actorFields are the fields
// whose values are not in cgroup files.
func (k *Keeper) Observe(actorFields ...lifecycle.Field) {
	k.observing = true
	k.RegisterActor(idleActor{}, actorFields...)
}

// idleActor is an actor that applies no values.
type idleActor struct{}

func (idleActor) Act(Target, lifecycle.Value, func() ([]int, error)) (State, error) {
	return Unchanged, nil
}
func (idleActor) Forget(string) error { return nil }
func (idleActor) Tidy() error         { return nil }

// observe ends jobs without a write, as if the kernel had the desired values. A value stays pending if its cgroup does
// not exist.
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

// Comparison compares a desired value with the text in the kernel.
type Comparison struct {
	Target     Target
	Value      lifecycle.Value
	Want       string // the text that a write of Value puts into the file
	KernelText string // the text that the file has
	Same       bool   // Want and KernelText mean the same value
}

// Setting returns the name of the setting for metrics. The number of different names is limited.
func (c *Comparison) Setting() string { return Item{Value: c.Value}.settingKey().setting() }

// Compare compares all desired values with the kernel's files. It leaves out cgroups that do
// not exist and files that it cannot read. It also leaves out weights of cgroups whose cpu.idle is 1, because
// the kernel does not show these weights.
func (k *Keeper) Compare() []Comparison {
	k.mu.Lock()
	jobs := k.makeJobs(maps.Values(k.table.rows), func(r *row) bool { return r.text != "" && !r.releasing })
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

// equalsDesired reports whether a text of the kernel means the desired value. In cgroup v2, there are two formulas that
// convert shares to a weight. The results of both formulas mean the desired value.
func (j *job) equalsDesired(text string) bool {
	if j.k.tree.Version == cgroup.V2 && j.field == lifecycle.CPUShares {
		line, curve := weightText(cgroup.Weight(j.value.Int)), weightText(cgroup.RuntimeWeight(j.value.Int))
		if text == line || text == curve {
			return true
		}
	}
	return j.row.handle.Same(text, j.text)
}
