package qrm

import (
	"context"
	"math"
	"sync"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
)

// Amount is what a plugin allocated of one resource, or can allocate.
type Amount struct {
	Resource         string
	OfNode, IsScalar bool
	Total            float64
	ByNode           map[int]float64 // by NUMA node
	// Capacity is the whole amount of the node, and CapacityByNode its parts; only of what can be
	// allocated.
	Capacity       float64
	CapacityByNode map[int]float64
}

// Amounts returns what plugins have allocated for the containers of a pod, by container name. It asks
// nobody.
func (m *Manager) Amounts(uid string) map[string][]Amount { //nolint:gocognit // nested maps of the protocol
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[uid]
	if p == nil {
		return nil
	}
	out := map[string][]Amount{}
	for ctr, of := range p.answers {
		for _, resource := range sortedKeys(of) {
			all := of[resource].answer.GetResourceAllocation()
			for _, name := range sortedKeys(all) {
				info := all[name]
				if q := info.GetAllocatedQuantity(); info == nil || !isName(name) || math.IsNaN(q) || math.IsInf(q, 0) || q < 0 {
					continue
				}
				one := Amount{Resource: name, OfNode: info.GetIsNodeResource(), IsScalar: info.GetIsScalarResource(), Total: info.GetAllocatedQuantity()}
				for node, amount := range info.GetTopologyAssignments() {
					if node < maxNodes && len(info.GetTopologyAssignments()) <= maxNodes {
						put(&one.ByNode, int(node), float64(amount)) //nolint:gosec // it is small
					}
				}
				out[ctr] = append(out[ctr], one)
			}
		}
	}
	return out
}

// Allocatable asks plugins what they can allocate, all at once. One that does not answer is left out.
func (m *Manager) Allocatable(ctx context.Context) (out []Amount) {
	plugins := m.all()
	answers := make([]*api.GetTopologyAwareAllocatableResourcesResponse, len(plugins))
	var all sync.WaitGroup
	for i, p := range plugins {
		all.Go(func() {
			var resp api.GetTopologyAwareAllocatableResourcesResponse
			if p.call(ctx, "GetTopologyAwareAllocatableResources", &api.GetTopologyAwareAllocatableResourcesRequest{}, &resp, nil) == nil {
				answers[i] = &resp
			}
		})
	}
	all.Wait()
	named := map[string]bool{}
	for _, a := range answers {
		of := a.GetAllocatableResources()
		if len(of) > maxPlugins {
			continue
		}
		for _, name := range sortedKeys(of) {
			r := of[name]
			if r == nil || !isName(name) || named[name] {
				continue
			}
			named[name] = true
			out = append(out, Amount{
				Resource: name, OfNode: r.GetIsNodeResource(), IsScalar: r.GetIsScalarResource(),
				Total: finite(r.GetAggregatedAllocatableQuantity()), ByNode: byNode(r.GetTopologyAwareAllocatableQuantityList()),
				Capacity: finite(r.GetAggregatedCapacityQuantity()), CapacityByNode: byNode(r.GetTopologyAwareCapacityQuantityList()),
			})
		}
	}
	return out
}

// byNode sums amounts by their NUMA node.
func byNode(all []*api.TopologyAwareQuantity) (out map[int]float64) {
	if len(all) > maxHints {
		return nil
	}
	for _, q := range all {
		if q.GetTopologyLevel() == api.TopologyLevel_NUMA && q.GetNode() < maxNodes {
			put(&out, int(q.GetNode()), finite(q.GetResourceValue())) //nolint:gosec // it is small
		}
	}
	return out
}

// finite returns an amount; 0 for what is no amount.
func finite(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		return 0
	}
	return v
}

// put adds to an amount, and makes the map when it is needed.
func put(m *map[int]float64, node int, v float64) {
	if *m == nil {
		*m = map[int]float64{}
	}
	(*m)[node] += v
}
