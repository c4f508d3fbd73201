package qrm

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"sync"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Amounts returns the amounts that plugins have allocated for the containers of a pod, by container name. It uses the
// plugin's last report about a container, or the plugin's stored allocation if there is no report. Amounts calls no
// plugin.
func (m *Manager) Amounts(uid string) map[string][]lifecycle.PluginAmount {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[uid]
	if p == nil {
		return nil
	}
	out := map[string][]lifecycle.PluginAmount{}
	for ctr, answers := range p.answers {
		var all []lifecycle.PluginAmount
		for _, resource := range sortedKeys(answers) {
			if r := p.reports[ctr][resource]; r.amounts != nil {
				all = mergeAmounts(all, r.amounts)
				continue
			}
			all = mergeAmounts(all, allocatedAmounts(answers[resource].answer))
		}
		out[ctr] = all
	}
	return out
}

// allocatedAmounts returns the amounts in an allocation. An allocation does not have the amounts at the container's
// creation, so allocatedAmounts returns the current amounts also as the amounts at the creation.
func allocatedAmounts(answer *api.ResourceAllocation) (out []lifecycle.PluginAmount) {
	all := answer.GetResourceAllocation()
	for _, name := range sortedKeys(all) {
		info := all[name]
		if q := info.GetAllocatedQuantity(); info == nil || !isResourceName(name) || finiteOrZero(q) != q { // not valid
			continue
		}
		one := lifecycle.PluginAmount{Resource: name, IsNodeResource: info.GetIsNodeResource(), IsScalarResource: info.GetIsScalarResource(), Total: info.GetAllocatedQuantity()}
		if at := info.GetTopologyAssignments(); len(at) <= maxNodes {
			for _, node := range slices.Sorted(maps.Keys(at)) {
				if node < maxNodes {
					one.ByNode = append(one.ByNode, lifecycle.PluginQuantity{Value: float64(at[node]), Node: node})
				}
			}
		}
		one.OtherTotal, one.OtherByNode = one.Total, one.ByNode
		out = append(out, one)
	}
	return out
}

// mergeAmounts adds the amounts in more to list. If list already has an amount of the same resource from another
// plugin, mergeAmounts sums the two amounts. Katalyst's server does the same.
func mergeAmounts(list, more []lifecycle.PluginAmount) []lifecycle.PluginAmount {
	for _, one := range more {
		i := slices.IndexFunc(list, func(o lifecycle.PluginAmount) bool { return o.Resource == one.Resource })
		if i < 0 {
			list = append(list, one)
			continue
		}
		at := &list[i]
		at.Total, at.OtherTotal = at.Total+one.Total, at.OtherTotal+one.OtherTotal
		at.ByNode, at.OtherByNode = slices.Concat(at.ByNode, one.ByNode), slices.Concat(at.OtherByNode, one.OtherByNode)
	}
	return list
}

// Allocatable asks all plugins in parallel for the amounts that they can allocate. If a plugin does not answer,
// Allocatable uses the plugin's last answer.
func (m *Manager) Allocatable(ctx context.Context) (out []lifecycle.PluginAmount) {
	const method = "GetTopologyAwareAllocatableResources"
	plugins := m.sortedPlugins()
	answers := make([][]lifecycle.PluginAmount, len(plugins))
	var all sync.WaitGroup
	for i, p := range plugins {
		if p.lacksMethod(method) {
			continue
		}
		all.Go(func() {
			var resp api.GetTopologyAwareAllocatableResourcesResponse
			err := p.call(ctx, method, &api.GetTopologyAwareAllocatableResourcesRequest{}, &resp, nil)
			switch {
			case isUnimplemented(err):
				p.markUnimplemented(method)
			case err != nil:
				answers[i] = m.lastAllocatable(p.resource)
			default:
				answers[i] = allocatableAmounts(resp.GetAllocatableResources())
				m.noteAllocatable(p.resource, answers[i])
			}
		})
	}
	all.Wait()
	for _, a := range answers {
		out = mergeAmounts(out, a)
	}
	return out
}

// lastAllocatable returns the last amounts that a plugin has sent to Allocatable.
func (m *Manager) lastAllocatable(resource string) []lifecycle.PluginAmount {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.allocatable[resource]
}

// noteAllocatable stores the amounts that a plugin has sent to Allocatable.
func (m *Manager) noteAllocatable(resource string, amounts []lifecycle.PluginAmount) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.allocatable[resource] = amounts
}

// allocatableAmounts converts the amounts in one plugin's answer to GetTopologyAwareAllocatableResources. It returns
// nil if the answer has too many resources.
func allocatableAmounts(of map[string]*api.AllocatableTopologyAwareResource) (out []lifecycle.PluginAmount) {
	if len(of) > maxPlugins {
		return nil
	}
	for _, name := range sortedKeys(of) {
		r := of[name]
		if r == nil || !isResourceName(name) {
			continue
		}
		out = append(out, lifecycle.PluginAmount{
			Resource: name, IsNodeResource: r.GetIsNodeResource(), IsScalarResource: r.GetIsScalarResource(),
			Total: finiteOrZero(r.GetAggregatedAllocatableQuantity()), ByNode: convertQuantities(r.GetTopologyAwareAllocatableQuantityList()),
			OtherTotal: finiteOrZero(r.GetAggregatedCapacityQuantity()), OtherByNode: convertQuantities(r.GetTopologyAwareCapacityQuantityList()),
		})
	}
	return out
}

// convertQuantities converts the parts of an amount, each with its NUMA node, and sorts them by node. If the id of a
// node is too large, convertQuantities leaves out the part. It leaves out names, types and annotations beyond maxBytes.
func convertQuantities(all []*api.TopologyAwareQuantity) (out []lifecycle.PluginQuantity) {
	if len(all) > maxHints {
		return nil
	}
	left := maxBytes
	for _, q := range all {
		if q.GetNode() >= maxNodes {
			continue
		}
		one := lifecycle.PluginQuantity{Value: finiteOrZero(q.GetResourceValue()), Node: q.GetNode(), Socket: q.GetTopologyLevel() == api.TopologyLevel_SOCKET}
		bytes := len(q.GetName()) + len(q.GetType())
		for k, v := range q.GetAnnotations() {
			bytes += len(k) + len(v)
		}
		if left -= bytes; left >= 0 {
			one.Name, one.Type, one.Annotations = q.GetName(), q.GetType(), q.GetAnnotations()
		}
		out = append(out, one)
	}
	slices.SortStableFunc(out, func(a, b lifecycle.PluginQuantity) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// finiteOrZero returns v, or 0 if v is negative or not finite.
func finiteOrZero(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		return 0
	}
	return v
}
