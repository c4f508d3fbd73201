package engine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/topology"
)

// hear grants a container what is wanted of it from outside now, as far as it
// can be had, and keeps that. What is owned by others, or is not there, is
// refused; of what only a creation can give, what came too late.
func (d *draft) hear(p *Pod, c *Container, o lifecycle.Outside, creating bool) {
	if o.Empty() {
		if creating {
			c.refusals = nil
		}
		return
	}
	c.refusals = slices.Clone(lifecycle.Bound(o.Problems, lifecycle.MaxProblems))
	granted := layer{values: slices.Clone(c.Outside)}
	defer func() { c.Outside = granted.values }()
	for _, v := range o.Values {
		switch {
		case !creating && !inUpdates(v.Field):
			c.deny(v, "a container is given it when it is created alone", "nothing changes")
			continue
		case v.Field == lifecycle.Unified && (v.Key == hook.ExclusiveFile || v.Key == hook.PartitionFile):
			c.deny(v, "pods that own CPUs are made partitions by hooks.partition, and nobody else is", "nothing changes")
			continue
		case v.Field == lifecycle.CPUSetCPUs:
			v.Text = d.grantOutside(p, c, v)
		case v.Field == lifecycle.CPUSetMems:
			v.Text = d.memoryOutside(p, c, v)
		}
		if v.Text != "" || v.Field != lifecycle.CPUSetCPUs && v.Field != lifecycle.CPUSetMems {
			granted.lay(v)
		}
	}
}

// inUpdates lists what an update can give a container.
func inUpdates(f lifecycle.Field) bool {
	switch f {
	case lifecycle.CPUShares, lifecycle.CPUQuota, lifecycle.CPUPeriod, lifecycle.CPUSetCPUs, lifecycle.CPUSetMems, lifecycle.MemoryLimit, lifecycle.Unified:
		return true
	}
	return false
}

// layer is a list of values with at most one for each thing that values set. A hook
// server may answer thousands, as many as a container has variables.
type layer struct {
	values []lifecycle.Value
	at     map[slot]int
}

// slot is what a value sets.
type slot struct {
	field lifecycle.Field
	scope lifecycle.Scope
	key   string
}

// find returns where the value is that sets what another does, -1 for nowhere.
func (l *layer) find(v lifecycle.Value) int {
	if l.at == nil {
		l.at = make(map[slot]int, len(l.values))
		for i := len(l.values) - 1; i >= 0; i-- { // the first counts
			l.at[slot{l.values[i].Field, l.values[i].Scope, l.values[i].Key}] = i
		}
	}
	if i, there := l.at[slot{v.Field, v.Scope, v.Key}]; there {
		return i
	}
	return -1
}

// lay adds a value, or puts it in the place of another.
func (l *layer) lay(v lifecycle.Value) {
	if i := l.find(v); i >= 0 {
		l.values[i] = v
		return
	}
	l.at[slot{v.Field, v.Scope, v.Key}] = len(l.values)
	l.values = append(l.values, v)
}

// Standing are those values of before that an update leaves alone: what it asks
// for anew counts, unless somebody outside says otherwise again.
func Standing(have []lifecycle.Value, r *lifecycle.Resources) []lifecycle.Value {
	if r == nil || len(have) == 0 {
		return have
	}
	asked := map[lifecycle.Field]bool{
		lifecycle.CPUShares: r.CPU.Shares.V != 0, lifecycle.CPUQuota: r.CPU.Quota.V != 0, lifecycle.CPUPeriod: r.CPU.Period.V != 0,
		lifecycle.CPUSetCPUs: r.CPU.CPUs != "", lifecycle.CPUSetMems: r.CPU.Mems != "", lifecycle.MemoryLimit: r.Memory.Limit.V != 0,
	}
	return slices.DeleteFunc(slices.Clone(have), func(v lifecycle.Value) bool {
		_, unified := r.Unified[v.Key]
		return asked[v.Field] || v.Field == lifecycle.Unified && unified
	})
}

// deny reports a value that is not granted.
func (c *Container) deny(v lifecycle.Value, why, then string) {
	c.refusals = lifecycle.Bound(append(c.refusals, lifecycle.Problem{
		Hook: lifecycle.OutsideHook, Key: v.Why.Source + ": " + v.Field.String(), Value: intent.Printable(cmp.Or(v.Key, v.String())),
		Reason: why, Then: then, Refused: true,
	}), lifecycle.MaxProblems)
}

// grantOutside returns which of the CPUs wanted for a container it may have, as
// a list: those of this machine that its pod's cgroup allows and nobody owns.
func (d *draft) grantOutside(p *Pod, c *Container, v lifecycle.Value) string {
	cpus, err := d.machine.ParseCPUs(v.Text)
	if err != nil {
		c.deny(v, err.Error(), "it keeps the CPUs it would have")
		return ""
	}
	if _, owns := d.ledger.Of(c.Key); owns {
		return v.Text // told when it is seated
	}
	for _, taken := range []struct {
		cpus topology.Set
		why  string
	}{
		{cpus.Minus(within(p, d.machine)), "are not allowed in the pod's cgroup"},
		{cpus.And(d.ledger.Exclusive()), "are owned by " + d.ownerOf(cpus)},
		{d.kubeletsOnly(p, cpus), "were given to others by the kubelet's static CPU manager"},
	} {
		if taken.cpus.Empty() {
			continue
		}
		cpus = cpus.Minus(taken.cpus)
		then := "it gets the others, " + d.machine.Format(cpus)
		if cpus.Empty() {
			then = "it keeps the CPUs it would have"
		}
		c.deny(v, fmt.Sprintf("CPUs %s %s", d.machine.Format(taken.cpus), taken.why), then)
	}
	return d.machine.Format(cpus)
}

func within(p *Pod, m *topology.Machine) topology.Set {
	if p.Within.Empty() {
		return m.Online()
	}
	return p.Within
}

func (d *draft) kubeletsOnly(p *Pod, cpus topology.Set) topology.Set {
	both, _ := d.kubelets(p, cpus)
	return both
}

// ownerOf names a pod that owns some of the CPUs.
func (d *draft) ownerOf(cpus topology.Set) string {
	for _, g := range d.ledger.Grants() {
		if !g.CPUs.And(cpus).Empty() {
			return g.Pod
		}
	}
	return "nobody"
}

// memoryOutside returns which memory nodes a container may have of those wanted:
// all of them, or none where one has no memory or the kubelet bound it to others.
func (d *draft) memoryOutside(p *Pod, c *Container, v lifecycle.Value) string {
	if bound := d.termsOf(p, c.Name, &c.Pristine).Given.Mems; len(bound) > 0 {
		c.deny(v, fmt.Sprintf("the kubelet's memory manager bound it to nodes %s, and authority says that the kubelet has the say", topology.FormatList(bound)), "it keeps these")
		return ""
	}
	ids, err := topology.ParseList(v.Text)
	if err != nil {
		c.deny(v, err.Error(), "it keeps the memory nodes it has")
		return ""
	}
	nodes := memoryNodes(d.machine)
	for _, id := range ids {
		if !slices.Contains(nodes, id) {
			c.deny(v, fmt.Sprintf("node %d has no memory", id), "it keeps the memory nodes it has")
			return ""
		}
	}
	return topology.FormatList(ids)
}

// memoryNodes are the ids of the nodes with memory; all of them, where nobody
// told how much they have.
func memoryNodes(m *topology.Machine) []int {
	var with, all []int
	for _, n := range m.Nodes {
		all = append(all, n.ID)
		if n.Memory > 0 {
			with = append(with, n.ID)
		}
	}
	if len(with) == 0 {
		return all
	}
	return with
}

// outsideCPUs returns the CPUs granted to a container from outside, and the
// value that says so.
func (d *draft) outsideCPUs(c *Container) (topology.Set, lifecycle.Value) {
	for _, v := range c.Outside {
		if v.Field == lifecycle.CPUSetCPUs {
			return d.machine.OnlineOf(v.Text), v
		}
	}
	return topology.Set{}, lifecycle.Value{}
}

// shareOutside bounds a container's seat by the CPUs it was granted from
// outside. Whoever owns some of them later takes them away, as from any pool.
func (d *draft) shareOutside(p *Pod, c *Container) {
	cpus, v := d.outsideCPUs(c)
	if cpus = cpus.And(within(p, d.machine)); cpus.Empty() {
		return
	}
	c.Seat = placement.Seat{Pool: placement.Rest, Within: cpus}
	c.SeatFrom, c.SeatWhy = v.Why.Source, "CPUs a hook server chose"
	c.touched = true // written out even where it is all there is
}

// ownNotOutside takes CPUs wanted from outside away from a container that owns
// some.
func (d *draft) ownNotOutside(c *Container, owned topology.Set) {
	cpus, v := d.outsideCPUs(c)
	if v.Field != lifecycle.CPUSetCPUs {
		return
	}
	c.Outside = slices.DeleteFunc(slices.Clone(c.Outside), func(o lifecycle.Value) bool { return o.Field == lifecycle.CPUSetCPUs })
	if cpus != owned {
		c.deny(v, fmt.Sprintf("the container owns CPUs %s", d.machine.Format(owned)), "it keeps them")
	}
}

// heed puts values granted from outside in the place of what hooks proposed.
func (d *draft) heed(c *Container, values []lifecycle.Value) []lifecycle.Value {
	if len(c.Outside) == 0 {
		return values
	}
	all := layer{values: values}
	for _, v := range c.Outside {
		if v.Field == lifecycle.CPUSetCPUs {
			if c.SeatFrom != v.Why.Source || c.Seat.Pool != placement.Rest {
				continue // its CPUs are gone: the pool stands
			}
			v.Text = d.seatText(c.Seat)
		}
		if at := all.find(v); at >= 0 && v.Field != lifecycle.CPUSetCPUs && !all.values[at].SameSetting(v) {
			v.Why.Text += fmt.Sprintf(", before %s's %s", all.values[at].Why.Hook, all.values[at])
		}
		all.lay(v)
	}
	return all.values
}
