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

// hugePageHints returns the hints for the huge pages in the spec of a new owner. The free pages of a node are its
// reserved pages without those that other containers request.
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

// freeHugePages returns the huge pages that other containers leave free on each node, in bytes. Containers whose
// memory nodes are not limited do not count, because it is unknown where they use pages.
func (s *placer) freeHugePages(resource string, all []uint64) []uint64 {
	changes := maps.Clone(s.n.containers)
	for _, c := range s.n.containersOf(s.c.PodID) {
		if c.Key == s.c.Key {
			changes[c.ID] = nil // an earlier attempt of this container
		}
	}
	free := slices.Clone(all)
	s.n.subtractCharges(free, s.n.usersOf(s.n.base.hugePageUse[resource], func(p *Pod, c *Container) charge { return hugePagesOf(p, c, resource) }, changes))
	return free
}

// hugePagesOf returns how many bytes of huge pages of a resource a container may use, and on which memory nodes. It
// returns the zero charge for init containers, and if the memory nodes are not known.
func hugePagesOf(p *Pod, c *Container, resource string) (of charge) {
	if c == nil || p == nil || !c.Alive() {
		return of
	}
	list := cmp.Or(c.Mems, c.Pristine.CPU.Mems)
	if list == "" {
		return of
	}
	spec, _ := p.Spec.Container(c.Name)
	if n := spec.Requests[resource]; n > 0 && spec.Kind != lifecycle.Init {
		return charge{list, uint64(n)}
	}
	return of
}

// newHugePageUse returns an empty nodeUse for each size of huge pages that the machine's nodes report, by
// resource name.
func newHugePageUse(m *topology.Machine) map[string]nodeUse {
	out := map[string]nodeUse{}
	for i := range m.Nodes {
		for size := range m.Nodes[i].HugePages {
			out[intent.HugepageName(size)] = newNodeUse()
		}
	}
	return out
}
