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

// nodeUse is how much memory, or how many bytes of huge pages of one size, containers may use of each NUMA node. The
// state updates it whenever a container changes, so that a decision need not visit all containers.
type nodeUse struct {
	byContainer map[string]nodeBytes // how much each container may use, by container id
	singleNode  map[string]uint64    // the bytes of the containers that may use only one node, by the node's id
	multiNode   map[string]bool      // the ids of the containers that may use several nodes
}

// nodeBytes is how many bytes one container may use, and on which NUMA nodes.
type nodeBytes struct {
	list  string // the ids of the nodes, as a kernel list
	bytes uint64
}

// newNodeUse returns a nodeUse without containers.
func newNodeUse() nodeUse {
	return nodeUse{byContainer: map[string]nodeBytes{}, singleNode: map[string]uint64{}, multiNode: map[string]bool{}}
}

func (u nodeUse) clone() nodeUse {
	return nodeUse{byContainer: maps.Clone(u.byContainer), singleNode: maps.Clone(u.singleNode), multiNode: maps.Clone(u.multiNode)}
}

// replace sets how many bytes a container may use and on which nodes. If now is zero, it removes the container.
func (u nodeUse) replace(id string, now nodeBytes) {
	old := u.byContainer[id]
	if old == now {
		return
	}
	if delete(u.multiNode, id); old.oneNode() {
		u.singleNode[old.list] -= old.bytes
	}
	switch u.byContainer[id] = now; {
	case now == nodeBytes{}:
		delete(u.byContainer, id)
	case now.oneNode():
		u.singleNode[now.list] += now.bytes
	default:
		u.multiNode[id] = true
	}
}

// memoryOf returns how much memory a container may use, and on which nodes; zero if that is not known. Only memory
// limits in Guaranteed pods count, because these equal the requests. Other limits may be arbitrarily large. If such
// limits counted, a node with free memory could look full.
func memoryOf(p *Pod, c *Container) (of nodeBytes) {
	if c == nil || p == nil || !c.Alive() || c.Pristine.Memory.Limit.V <= 0 || p.Intent.QoS != intent.Guaranteed {
		return of
	}
	if list := cmp.Or(c.Mems, c.Pristine.CPU.Mems); list != "" {
		return nodeBytes{list, uint64(c.Pristine.Memory.Limit.V)}
	}
	return of
}

// oneNode reports whether the container may use exactly one node.
func (c nodeBytes) oneNode() bool { return c.list != "" && !strings.ContainsAny(c.list, ",-") }

// updateUse updates memoryUse and hugePageUse after a change of one container. c is nil if the container was removed.
func (s *State) updateUse(id string, c *Container) {
	var p *Pod
	if c != nil {
		p = s.pods[c.PodID]
	}
	s.memoryUse.replace(id, memoryOf(p, c))
	for resource, use := range s.hugePageUse {
		use.replace(id, hugePagesOf(p, c, resource))
	}
}

// updateUseOfPods updates memoryUse and hugePageUse for the containers of the given pods.
func (s *State) updateUseOfPods(pods map[string]*Pod) {
	for id := range pods {
		for _, container := range s.containerIDsByPod[id] {
			s.updateUse(container, s.containers[container])
		}
	}
}

// freeMemory returns the memory of each node that the memory limits of containers leave free, in bytes; nil if the
// memory of the nodes is not known. It assumes that a container with several nodes fills the nearest node first. The
// containers in expected, which no runtime has reported yet, also count.
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
	users := n.usersOf(n.base.memoryUse, memoryOf, n.containers)
	for c, p := range expected {
		users.add(p, c, memoryOf(p, c))
	}
	// A container that may use all nodes, and whose memory should be near none of them, does not count: the nodes that
	// it uses are unknown.
	users.multiNode = slices.DeleteFunc(users.multiNode, func(w multiNodeUser) bool {
		ids, _ := topology.ParseList(w.list)
		return len(ids) >= len(n.machine.Nodes) && n.nearMemoryCPUs(w.pod, w.c).Empty()
	})
	n.subtractUse(free, users)
	return free
}

// nodeUsers is how much memory all containers may use, in the form that subtractUse needs.
type nodeUsers struct {
	singleNode map[string]uint64 // the bytes of containers that may use only one node, by the node's id
	multiNode  []multiNodeUser
}

// multiNodeUser is a container that may use several nodes, with the bytes and the nodes that it may use.
type multiNodeUser struct {
	nodeBytes

	pod *Pod
	c   *Container
}

// add adds what one container may use.
func (u *nodeUsers) add(p *Pod, c *Container, now nodeBytes) {
	switch {
	case now.oneNode():
		u.singleNode[now.list] += now.bytes
	case now != nodeBytes{}:
		u.multiNode = append(u.multiNode, multiNodeUser{now, p, c})
	}
}

// usersOf returns how much memory all containers may use: kept, the use in the base state, with the given changes of
// containers. The function useOf returns what a container may use. In changes, a removed container is nil.
func (n *view) usersOf(kept nodeUse, useOf func(*Pod, *Container) nodeBytes, changes map[string]*Container) nodeUsers {
	out := nodeUsers{singleNode: map[string]uint64{}}
	if n.ignoresBase {
		kept = nodeUse{}
	}
	maps.Copy(out.singleNode, kept.singleNode)
	for id := range kept.multiNode {
		if _, changed := changes[id]; !changed {
			c := n.base.containers[id]
			out.multiNode = append(out.multiNode, multiNodeUser{kept.byContainer[id], n.pod(c.PodID), c})
		}
	}
	for id, c := range changes {
		if old := kept.byContainer[id]; old.oneNode() {
			out.singleNode[old.list] -= old.bytes
		}
		if c != nil {
			p := n.pod(c.PodID)
			out.add(p, c, useOf(p, c))
		}
	}
	return out
}

// subtractUse subtracts what containers may use from the free bytes of each node. Containers that may use few nodes
// come first.
func (n *view) subtractUse(free []uint64, users nodeUsers) {
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
		choose.SubtractMemory(n.machine, free, n.nearMemoryCPUs(u.pod, u.c), u.ids, u.bytes)
	}
}
