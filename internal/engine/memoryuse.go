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

// nodeUse is how many bytes containers can use of each NUMA node: bytes of memory, or bytes of huge pages of one size.
// The state updates its nodeUse values whenever a container changes, so that a decision need not visit all containers.
type nodeUse struct {
	byContainer map[string]nodeBytes // how much each container can use, by container id
	singleNode  map[string]uint64    // the sum of the bytes of the containers that can use only one node, by the node's id
	multiNode   map[string]bool      // the ids of the containers that can use several nodes
}

// nodeBytes is how many bytes one container can use, and on which NUMA nodes.
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

// replace sets how many bytes a container can use and on which nodes (now). If now is zero, replace removes the
// container.
func (u nodeUse) replace(id string, now nodeBytes) {
	old := u.byContainer[id]
	if old == now {
		return
	}
	if delete(u.multiNode, id); old.hasOneNode() {
		u.singleNode[old.list] -= old.bytes
	}
	switch u.byContainer[id] = now; {
	case now == nodeBytes{}:
		delete(u.byContainer, id)
	case now.hasOneNode():
		u.singleNode[now.list] += now.bytes
	default:
		u.multiNode[id] = true
	}
}

// memoryOf returns how much memory a container can use, and on which nodes; zero if that is not known. Only memory
// limits in Guaranteed pods count, because there the limits equal the requests. Other limits can be arbitrarily large.
// If such limits counted, a node with free memory could look full.
func memoryOf(p *Pod, c *Container) (of nodeBytes) {
	if c == nil || p == nil || !c.Alive() || c.Pristine.Memory.Limit.V <= 0 || p.Intent.QoS != intent.Guaranteed {
		return of
	}
	if list := cmp.Or(c.Mems, c.Pristine.CPU.Mems); list != "" {
		return nodeBytes{list, uint64(c.Pristine.Memory.Limit.V)}
	}
	return of
}

// hasOneNode reports whether the container can use exactly one node.
func (c nodeBytes) hasOneNode() bool { return c.list != "" && !strings.ContainsAny(c.list, ",-") }

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

// freeMemory returns how many bytes of each node's memory remain if each container uses as much memory as its limit
// allows; nil if the memory of the nodes is not known. A container with several nodes is assumed to fill the nearest
// node first. The containers in expected, which no runtime has reported yet, also count.
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
	users := n.totalUseOf(n.base.memoryUse, memoryOf, n.containers)
	for c, p := range expected {
		users.add(p, c, memoryOf(p, c))
	}
	// If a container can use all nodes, and need not have its memory near certain CPUs, the container does not count:
	// it is unknown which nodes it uses.
	users.multiNode = slices.DeleteFunc(users.multiNode, func(w multiNodeUser) bool {
		ids, _ := topology.ParseList(w.list)
		return len(ids) >= len(n.machine.Nodes) && n.nearMemoryCPUs(w.pod, w.c).Empty()
	})
	n.subtractUse(free, users)
	return free
}

// totalUse is how many bytes all containers can use, in the form that subtractUse needs.
type totalUse struct {
	singleNode map[string]uint64 // the sum of the bytes of the containers that can use only one node, by the node's id
	multiNode  []multiNodeUser
}

// multiNodeUser is a container that can use several nodes, with the bytes and the nodes that it can use.
type multiNodeUser struct {
	nodeBytes

	pod *Pod
	c   *Container
}

// add adds what one container can use.
func (u *totalUse) add(p *Pod, c *Container, now nodeBytes) {
	switch {
	case now.hasOneNode():
		u.singleNode[now.list] += now.bytes
	case now != nodeBytes{}:
		u.multiNode = append(u.multiNode, multiNodeUser{now, p, c})
	}
}

// totalUseOf returns how many bytes all containers can use. The parameter kept has the bytes in the base state. The
// parameter changes has the new versions of changed containers, and nil for removed containers. For a changed
// container, the function useOf computes the bytes.
func (n *view) totalUseOf(kept nodeUse, useOf func(*Pod, *Container) nodeBytes, changes map[string]*Container) totalUse {
	out := totalUse{singleNode: map[string]uint64{}}
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
		if old := kept.byContainer[id]; old.hasOneNode() {
			out.singleNode[old.list] -= old.bytes
		}
		if c != nil {
			p := n.pod(c.PodID)
			out.add(p, c, useOf(p, c))
		}
	}
	return out
}

// subtractUse subtracts what containers can use from the free bytes of each node. Containers that can use few nodes
// come first.
func (n *view) subtractUse(free []uint64, users totalUse) {
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
