package engine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement/numahints"
	"github.com/trimtab/trimtab/internal/topology"
)

// hugePageHints returns the hints for the huge pages that a container requests in its pod's spec. The free huge pages
// of a NUMA node are all huge pages of the node, minus the huge pages that other containers request there.
func (s *placer) hugePageHints() (out []numahints.Resource) {
	of, known := s.p.Spec.Container(s.c.Name)
	if !known {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(of.Requests)) {
		size, pages := intent.HugepageSize(name)
		if !pages || of.Requests[name] <= 0 {
			continue
		}
		c := &numahints.Counts{Need: uint64(of.Requests[name])} //nolint:gosec // the request is positive
		for i := range s.n.machine.Nodes {
			c.Capacity = append(c.Capacity, s.n.machine.Nodes[i].HugePages[size]*size)
		}
		if slices.Max(c.Capacity) == 0 {
			continue // no NUMA node reports such pages; the kubelet only checks the sum over all nodes
		}
		c.Free = s.freeHugePages(name, c.Capacity)
		out = append(out, numahints.Resource{Name: name, Counts: c})
	}
	return out
}

// freeHugePages returns, for each NUMA node, how many bytes of huge pages are left free by other containers. The
// parameter all has the bytes of all huge pages of each node. Containers whose memory nodes are not limited do not
// count, because it is unknown on which nodes their huge pages are.
func (s *placer) freeHugePages(resource string, all []uint64) []uint64 {
	changes := maps.Clone(s.n.containers)
	for _, c := range s.n.containersOf(s.c.PodID) {
		if c.Key == s.c.Key {
			changes[c.ID] = nil // an earlier attempt of this container does not count
		}
	}
	free := slices.Clone(all)
	s.n.subtractUse(free, s.n.totalUseOf(s.n.base.hugePageUse[resource], func(p *Pod, c *Container) nodeBytes { return hugePagesOf(p, c, resource) }, changes))
	return free
}

// hugePagesOf returns how many bytes of huge pages a container requests, and on which memory nodes the pages can be.
// The resource names the size of the pages, such as hugepages-2Mi. The result is zero for init containers, and for
// containers whose memory nodes are not known.
func hugePagesOf(p *Pod, c *Container, resource string) (of nodeBytes) {
	if c == nil || p == nil || !c.Alive() {
		return of
	}
	list := cmp.Or(c.Mems, c.Pristine.CPU.Mems)
	if list == "" {
		return of
	}
	spec, _ := p.Spec.Container(c.Name)
	if n := spec.Requests[resource]; n > 0 && spec.Kind != lifecycle.Init {
		return nodeBytes{list, uint64(n)}
	}
	return of
}

// newHugePageUse returns one empty nodeUse (the bytes that containers can use of each NUMA node) for each size of huge
// pages of the machine. The keys are the names of resources, such as hugepages-2Mi.
func newHugePageUse(m *topology.Machine) map[string]nodeUse {
	out := map[string]nodeUse{}
	for i := range m.Nodes {
		for size := range m.Nodes[i].HugePages {
			out[intent.HugepageName(size)] = newNodeUse()
		}
	}
	return out
}
