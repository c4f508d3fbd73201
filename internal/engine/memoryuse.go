package engine

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/topology"
)

// nodeUse is how much memory, or how many huge pages of one size, containers may use of each NUMA node. The state
// updates it whenever a container changes, so that a decision need not visit all containers.
type nodeUse struct {
	charges    map[string]charge // by container id
	singleNode map[string]uint64 // the bytes of the containers that may use only one node, by the node's id
	multiNode  map[string]bool   // the ids of the containers that may use several nodes
}

// charge is how many bytes one container may use, and on which nodes.
type charge struct {
	list  string // the ids of the nodes, as a kernel list
	bytes uint64
}

// newNodeUse returns a nodeUse without charges.
func newNodeUse() nodeUse {
	return nodeUse{charges: map[string]charge{}, singleNode: map[string]uint64{}, multiNode: map[string]bool{}}
}

func (u nodeUse) clone() nodeUse {
	return nodeUse{charges: maps.Clone(u.charges), singleNode: maps.Clone(u.singleNode), multiNode: maps.Clone(u.multiNode)}
}

// replace sets the charge of a container; the zero charge removes it.
func (u nodeUse) replace(id string, now charge) {
	old := u.charges[id]
	if old == now {
		return
	}
	if delete(u.multiNode, id); old.oneNode() {
		u.singleNode[old.list] -= old.bytes
	}
	switch u.charges[id] = now; {
	case now == charge{}:
		delete(u.charges, id)
	case now.oneNode():
		u.singleNode[now.list] += now.bytes
	default:
		u.multiNode[id] = true
	}
}

// chargeOf returns the memory that a container may use; the zero charge if that is not known. Only limits in
// Guaranteed pods count, because they equal the requests. Other limits may be arbitrarily large, and would
// make a node look full although it has free memory.
func chargeOf(p *Pod, c *Container) (of charge) {
	if c == nil || p == nil || !c.Alive() || c.Pristine.Memory.Limit.V <= 0 || p.Intent.QoS != intent.Guaranteed {
		return of
	}
	if list := cmp.Or(c.Mems, c.Pristine.CPU.Mems); list != "" {
		return charge{list, uint64(c.Pristine.Memory.Limit.V)}
	}
	return of
}

// oneNode reports whether the list has exactly one node.
func (c charge) oneNode() bool { return c.list != "" && !strings.ContainsAny(c.list, ",-") }

// charge updates memoryUse and hugePageUse for a container; c is nil if the container was removed.
func (s *State) charge(id string, c *Container) {
	var p *Pod
	if c != nil {
		p = s.pods[c.PodID]
	}
	s.memoryUse.replace(id, chargeOf(p, c))
	for resource, use := range s.hugePageUse {
		use.replace(id, hugePagesOf(p, c, resource))
	}
}

// chargePods updates memoryUse and hugePageUse for the containers of pods that changed.
func (s *State) chargePods(pods map[string]*Pod) {
	for id := range pods {
		for _, container := range s.containerIDsByPod[id] {
			s.charge(container, s.containers[container])
		}
	}
}

// freeMemory returns the memory of each node that the limits of containers leave free, in bytes; nil if the
// memory of the nodes is not known. A container on several nodes is assumed to fill the nearest node first.
// expected has expected containers and their pods, which also count.
func (n *view) freeMemory(expected map[*Container]*Pod) []uint64 {
	free := make([]uint64, len(n.machine.Nodes))
	known := false
	for i := range n.machine.Nodes {
		free[i] = n.machine.Nodes[i].Memory
		known = known || free[i] > 0
	}
	if !known {
		return nil
	}
	users := n.usersOf(n.base.memoryUse, chargeOf, n.containers)
	for c, p := range expected {
		users.addCharge(p, c, chargeOf(p, c))
	}
	// Containers that may use all nodes and are near none of them do not count, because it is unknown where
	// they use memory.
	users.multiNode = slices.DeleteFunc(users.multiNode, func(w multiNodeUser) bool {
		ids, _ := topology.ParseList(w.list)
		return len(ids) >= len(n.machine.Nodes) && n.nearMemoryCPUs(w.pod, w.c).Empty()
	})
	n.subtractCharges(free, users)
	return free
}

// nodeUsers has the charges of all containers, for subtractCharges.
type nodeUsers struct {
	singleNode map[string]uint64 // the bytes of containers that may use only one node, by the node's id
	multiNode  []multiNodeUser
}

// multiNodeUser is a container that may use several nodes.
type multiNodeUser struct {
	charge

	pod *Pod
	c   *Container
}

// addCharge adds the charge of a container.
func (u *nodeUsers) addCharge(p *Pod, c *Container, now charge) {
	switch {
	case now.oneNode():
		u.singleNode[now.list] += now.bytes
	case now != charge{}:
		u.multiNode = append(u.multiNode, multiNodeUser{now, p, c})
	}
}

// usersOf returns the users in kept, a nodeUse of the state, with the given changes of containers. The function of
// returns the charge of a container.
func (n *view) usersOf(kept nodeUse, of func(*Pod, *Container) charge, changes map[string]*Container) nodeUsers {
	out := nodeUsers{singleNode: map[string]uint64{}}
	if n.ignoresBase {
		kept = nodeUse{}
	}
	maps.Copy(out.singleNode, kept.singleNode)
	for id := range kept.multiNode {
		if _, changed := changes[id]; !changed {
			c := n.base.containers[id]
			out.multiNode = append(out.multiNode, multiNodeUser{kept.charges[id], n.pod(c.PodID), c})
		}
	}
	for id, c := range changes {
		if old := kept.charges[id]; old.oneNode() {
			out.singleNode[old.list] -= old.bytes
		}
		if c != nil {
			p := n.pod(c.PodID)
			out.addCharge(p, c, of(p, c))
		}
	}
	return out
}

// subtractCharges subtracts the charges of containers from the free bytes of each node. Containers that may use few
// nodes come first.
func (n *view) subtractCharges(free []uint64, users nodeUsers) {
	for i := range n.machine.Nodes {
		free[i] -= min(free[i], users.singleNode[strconv.Itoa(n.machine.Nodes[i].ID)])
	}
	type user struct {
		multiNodeUser

		ids []int
	}
	var all []user
	for _, w := range users.multiNode {
		if ids, err := topology.ParseList(w.list); err == nil {
			all = append(all, user{w, ids})
		}
	}
	slices.SortFunc(all, func(a, b user) int { return cmp.Or(len(a.ids)-len(b.ids), cmp.Compare(a.c.ID, b.c.ID)) })
	for _, u := range all {
		choose.Charge(n.machine, free, n.nearMemoryCPUs(u.pod, u.c), u.ids, u.bytes)
	}
}
