package engine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/topology"
)

// memoryUse is what containers may use of NUMA nodes. It is kept up to date with every container,
// so that a decision does not look at all of them.
type memoryUse struct {
	charges map[string]charge // by container
	alone   map[string]uint64 // bytes of the containers that use one node, by its list
	wide    map[string]bool   // the containers that use several
}

// charge is the memory of one container.
type charge struct {
	list  string // of nodes
	bytes uint64
}

func newMemoryUse() memoryUse {
	return memoryUse{charges: map[string]charge{}, alone: map[string]uint64{}, wide: map[string]bool{}}
}

func (u memoryUse) clone() memoryUse {
	return memoryUse{charges: maps.Clone(u.charges), alone: maps.Clone(u.alone), wide: maps.Clone(u.wide)}
}

// chargeOf returns the memory that a container of a pod may use; nothing if that is not known.
// Only limits of Guaranteed pods count, since these limits equal the requests. Other limits may be
// arbitrarily large, and would needlessly keep pods off a node.
func chargeOf(p *Pod, c *Container) (of charge) {
	if c == nil || p == nil || !c.Alive() || c.Pristine.Memory.Limit.V <= 0 || p.Intent.QoS != intent.Guaranteed {
		return of
	}
	if list := cmp.Or(c.Mems, c.Pristine.CPU.Mems); list != "" {
		return charge{list, uint64(c.Pristine.Memory.Limit.V)}
	}
	return of
}

// oneNode reports whether a list names one node.
func (c charge) oneNode() bool {
	ids, err := topology.ParseList(c.list)
	return err == nil && len(ids) == 1
}

// charge replaces what a container may use; c is nil if it has ended.
func (s *State) charge(id string, c *Container) {
	old := s.memory.charges[id]
	var now charge
	if c != nil {
		now = chargeOf(s.pods[c.PodID], c)
	}
	if old == now {
		return
	}
	if delete(s.memory.wide, id); old.oneNode() {
		s.memory.alone[old.list] -= old.bytes
	}
	switch s.memory.charges[id] = now; {
	case now == charge{}:
		delete(s.memory.charges, id)
	case now.oneNode():
		s.memory.alone[now.list] += now.bytes
	default:
		s.memory.wide[id] = true
	}
}

// chargePods charges the containers of pods that changed.
func (s *State) chargePods(pods map[string]*Pod) {
	for id := range pods {
		for _, of := range s.byPod[id] {
			s.charge(of, s.containers[of])
		}
	}
}

// freeMemory returns the memory of each node that the limits of placed containers leave free, in
// bytes; nil if the nodes' memory is not known. A container on several nodes is assumed to fill
// the nearest node first. Containers that are expected, with their pods, count too.
func (n *view) freeMemory(expected map[*Container]*Pod) []uint64 {
	free := make([]uint64, len(n.machine.Nodes))
	known := false
	for i, node := range n.machine.Nodes {
		free[i], known = node.Memory, known || node.Memory > 0
	}
	if !known {
		return nil
	}
	alone, wide := map[string]uint64{}, []wideUser{}
	add := func(p *Pod, c *Container) {
		switch now := chargeOf(p, c); {
		case now.oneNode():
			alone[now.list] += now.bytes
		case now != charge{}:
			wide = append(wide, wideUser{p, c})
		}
	}
	if !n.fresh {
		maps.Copy(alone, n.base.memory.alone)
		for id := range n.base.memory.wide {
			if _, changed := n.containers[id]; !changed {
				c := n.base.containers[id]
				wide = append(wide, wideUser{n.pod(c.PodID), c})
			}
		}
	}
	for id, c := range n.containers {
		if old := n.base.memory.charges[id]; !n.fresh && old.oneNode() {
			alone[old.list] -= old.bytes
		}
		if c != nil {
			add(n.pod(c.PodID), c)
		}
	}
	for c, p := range expected {
		add(p, c)
	}
	// Containers that can use only one node come first.
	for i := range n.machine.Nodes {
		free[i] -= min(free[i], alone[topology.FormatList([]int{n.machine.Nodes[i].ID})])
	}
	n.chargeWide(free, wide)
	return free
}

// wideUser is a container that may use memory of several nodes.
type wideUser struct {
	pod *Pod
	c   *Container
}

// chargeWide subtracts what containers on several nodes may use.
func (n *view) chargeWide(free []uint64, wide []wideUser) {
	type user struct {
		c    *Container
		ids  []int
		near topology.Set
	}
	var users []user
	for _, w := range wide {
		ids, err := topology.ParseList(chargeOf(w.pod, w.c).list)
		near := n.memoryNear(w.pod, w.c)
		if err == nil && (!near.Empty() || len(ids) < len(n.machine.Nodes)) {
			users = append(users, user{w.c, ids, near})
		}
	}
	slices.SortFunc(users, func(a, b user) int { return cmp.Or(len(a.ids)-len(b.ids), cmp.Compare(a.c.ID, b.c.ID)) })
	for _, u := range users {
		choose.Charge(n.machine, free, u.near, u.ids, uint64(u.c.Pristine.Memory.Limit.V))
	}
}
