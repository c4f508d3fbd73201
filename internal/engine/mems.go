package engine

import (
	"errors"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/topology"
)

// settleMems decides the memory nodes of a container that is created: those of
// its CPUs where these are its own or on a node it is bound to, else all but
// those others have alone. What the kubelet chose stands, and what was decided
// once is not decided again: pages would have to move.
func (d *draft) settleMems(p *Pod, c *Container) {
	if t := d.termsOf(p, c.Name, &c.Pristine); !t.Chooses || c.Pristine.CPU.Mems != "" || len(d.machine.Nodes) < 2 || len(t.Given.Mems) > 0 {
		return
	}
	all, usable := d.memoryNodes(p)
	q := choose.Memory{Within: usable, Bytes: uint64(max(c.Pristine.Memory.Limit.V, 0))}
	switch {
	case c.Seat.Pool == placement.Own:
		q.CPUs = c.Seat.Owned
	case c.Home.Set:
		node, _ := d.machine.Node(c.Home.V)
		q.CPUs = node.CPUs
	case c.Seat.Pool == placement.Reclaimed && p.Intent.NUMA.Said():
		q.CPUs = c.Seat.Near
	case c.Seat.Pool == placement.Shared || c.Seat.Pool == placement.Reclaimed:
		if len(usable) > 0 && len(usable) < len(all) {
			c.Mems = topology.FormatList(usable)
		}
		return
	}
	if q.CPUs.Empty() {
		return
	}
	if q.Bytes > 0 {
		q.Free = d.freeMemory()
	}
	ids, err := choose.Nodes(d.machine, q)
	if short := (*choose.MemoryError)(nil); errors.As(err, &short) {
		c.Trouble = append(c.Trouble, lifecycle.Problem{
			Key: "cpuset.mems", Value: topology.FormatList(usable), Reason: err.Error(), Warning: true, Then: "the nearest nodes are used all the same",
		})
		q.Bytes = 0
		ids, err = choose.Nodes(d.machine, q)
	}
	if err == nil {
		c.Mems = topology.FormatList(ids)
	}
}

// memoryNodes lists the nodes that have ordinary memory, and those of them that
// no other pod has alone.
func (d *draft) memoryNodes(p *Pod) (all, usable []int) {
	alone := d.ledger.Alone(p.Pod.UID)
	for _, n := range d.machine.Nodes {
		if n.Kind != topology.DRAM {
			continue
		}
		all = append(all, n.ID)
		if n.CPUs.And(alone).Empty() {
			usable = append(usable, n.ID)
		}
	}
	return all, usable
}

// freeMemory is what the limits of containers that were given memory nodes leave
// of each node, in bytes; nil where the nodes' memory is not known. A container
// on several nodes counts on all of them alike. Only limits of Guaranteed pods count,
// which are requests as well: any other may be as large as its author likes, and would
// drive others off a node for nothing.
func (d *draft) freeMemory() []uint64 {
	free := make([]uint64, len(d.machine.Nodes))
	known := false
	for i, n := range d.machine.Nodes {
		free[i], known = n.Memory, known || n.Memory > 0
	}
	if !known {
		return nil
	}
	for _, c := range d.everyone() {
		d.takeMemory(free, c)
	}
	return free
}

// takeMemory takes what a container may use from the nodes it is on.
func (d *draft) takeMemory(free []uint64, c *Container) {
	if !c.Alive() || c.Mems == "" || c.Pristine.Memory.Limit.V <= 0 {
		return
	}
	if p := d.pod(c.PodID); p == nil || p.Intent.QoS != intent.Guaranteed {
		return
	}
	ids, err := topology.ParseList(c.Mems)
	if err != nil || len(ids) == 0 || len(ids) == len(d.machine.Nodes) {
		return
	}
	for _, id := range ids {
		if i, ok := d.machine.NodeIndex(id); ok {
			free[i] -= min(free[i], uint64(c.Pristine.Memory.Limit.V)/uint64(len(ids)))
		}
	}
}

// everyone lists all containers, as they are with the draft's changes.
func (d *draft) everyone() []*Container {
	var out []*Container
	if !d.fresh {
		for id, c := range d.base.containers {
			if _, changed := d.containers[id]; !changed {
				out = append(out, c)
			}
		}
	}
	for _, c := range d.containers {
		if c != nil {
			out = append(out, c)
		}
	}
	return out
}
