package engine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement/choose"
	"github.com/trimtab/trimtab/internal/placement/numahints"
	"github.com/trimtab/trimtab/internal/topology"
)

// pageHints returns the hints for the huge pages that a new owner requests by its spec: pages that
// nodes have reserved, less those that other containers request.
func (s *placer) pageHints() (out []numahints.Resource) {
	of, known := s.p.Spec.Container(s.c.Name)
	if !known {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(of.Requests)) {
		size, pages := intent.HugepageSize(name)
		if !pages || of.Requests[name] <= 0 {
			continue
		}
		c := &numahints.Counts{Need: uint64(of.Requests[name])} //nolint:gosec // it is positive
		for i := range s.n.machine.Nodes {
			c.Capacity = append(c.Capacity, s.n.machine.Nodes[i].HugePages[size]*size)
		}
		if slices.Max(c.Capacity) == 0 {
			continue // no node reports them; the kubelet admits by the node's sum
		}
		c.Free = s.freePages(name, c.Capacity)
		out = append(out, numahints.Resource{Name: name, Counts: c})
	}
	return out
}

// freePages returns what other containers leave of huge pages on each node, in bytes. A container
// whose memory nodes are not limited may have them anywhere, and does not count.
func (s *placer) freePages(resource string, all []uint64) []uint64 {
	free := slices.Clone(all)
	for _, c := range s.n.changedContainers(true) {
		p, list := s.n.pod(c.PodID), cmp.Or(c.Mems, c.Pristine.CPU.Mems)
		if !c.Alive() || list == "" || p == nil || c.Key == s.c.Key {
			continue
		}
		of, _ := p.Spec.Container(c.Name)
		ids, err := topology.ParseList(list)
		if n := of.Requests[resource]; n > 0 && err == nil && of.Kind != lifecycle.Init {
			choose.Charge(s.n.machine, free, s.n.memoryNear(p, c), ids, uint64(n))
		}
	}
	return free
}
