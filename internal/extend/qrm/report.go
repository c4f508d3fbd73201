package qrm

import (
	"context"
	"slices"
	"sync"
	"time"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sleep"
)

// containerReport is a plugin's last answer to GetTopologyAwareResources for a container. It has amounts by NUMA node
// with the names of devices, and the amounts at the container's creation. No other call returns the amounts at the
// creation.
type containerReport struct {
	amounts []lifecycle.PluginAmount // nil if the plugin has not answered
	// allocation is the stored allocation at the last request for a report. requestedAt is the time of that request.
	allocation  *api.ResourceAllocation
	requestedAt time.Time
}

const (
	// reportMethod is the method with which the manager requests a report.
	reportMethod = "GetTopologyAwareResources"
	// reportPeriod is the interval between two requests about a container whose allocation did not change.
	reportPeriod = time.Minute
	// At each reportTick, the manager looks for containers whose last request was a reportPeriod ago. reportBatch
	// limits the requests to one plugin at a tick, so that a thousand containers do not cause too many calls.
	reportTick  = 5 * time.Second
	reportBatch = 64
)

// readReports asks plugins for reports about the containers with allocations of these plugins, until ctx ends. It asks
// soon after an allocation has changed, and at regular intervals.
func (m *Manager) readReports(ctx context.Context) {
	tick := time.NewTicker(reportTick)
	defer tick.Stop()
	for {
		maxRepeated := 0
		select {
		case <-ctx.Done():
			return
		case <-m.reportsDue:
			if !sleep.For(ctx, saveDelay) { // collect further changes
				return
			}
		case <-tick.C:
			maxRepeated = reportBatch
		}
		var all sync.WaitGroup
		for _, p := range m.sortedPlugins() {
			if due := m.dueReports(p, maxRepeated); len(due) > 0 {
				all.Go(func() { m.readReportsOf(ctx, p, due) })
			}
		}
		all.Wait()
	}
}

// dueReports returns the containers about which the manager must ask a plugin for a report. These are all containers
// whose allocation has changed since the last request. In addition, they are at most maxRepeated other containers,
// except init containers, whose last request was a reportPeriod ago. The containers with the oldest requests come
// first.
func (m *Manager) dueReports(p *plugin, maxRepeated int) (due []containerAllocation) {
	if p.lacksMethod(reportMethod) {
		return nil
	}
	type aged struct {
		containerAllocation
		at time.Time
	}
	var old []aged
	now := m.opts.Now()
	for _, at := range m.containerAllocations(p.resource) {
		r := m.reportOf(p.resource, at)
		switch {
		case r.allocation != at.answer:
			due = append(due, at)
		case at.request.GetContainerType() == api.ContainerType_INIT: // init containers end soon
		case maxRepeated > 0 && now.Sub(r.requestedAt) >= reportPeriod:
			old = append(old, aged{at, r.requestedAt})
		}
	}
	slices.SortStableFunc(old, func(a, b aged) int { return a.at.Compare(b.at) })
	for _, a := range old[:min(len(old), maxRepeated)] {
		due = append(due, a.containerAllocation)
	}
	return due
}

// reportOf returns the stored report about a container. If the pod has ended, reportOf returns a report with the
// allocation at.answer. The caller compares the two, so the allocation does not count as changed.
func (m *Manager) reportOf(resource string, at containerAllocation) containerReport {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pods[at.uid]; p != nil {
		return p.reports[at.container][resource]
	}
	return containerReport{allocation: at.answer}
}

// readReportsOf asks one plugin for reports about containers, one after the other. It stops if the plugin does not
// answer. If the plugin answers with an error, it continues, because the error concerns only one container. Without a
// new report about a container, the last report stays stored.
func (m *Manager) readReportsOf(ctx context.Context, p *plugin, due []containerAllocation) {
	for _, at := range due {
		var resp api.GetTopologyAwareResourcesResponse
		err := p.call(ctx, reportMethod, &api.GetTopologyAwareResourcesRequest{PodUid: at.uid, ContainerName: at.container}, &resp, nil)
		switch {
		case isUnimplemented(err):
			p.markUnimplemented(reportMethod)
			return
		case err != nil && resultOf(err) != Failed:
			return
		case err != nil:
			m.noteReport(p.resource, at, nil)
		default:
			m.noteReport(p.resource, at, reportedAmounts(at, &resp))
		}
	}
}

// noteReport stores a report. If amounts is nil, the stored amounts do not change.
func (m *Manager) noteReport(resource string, at containerAllocation, amounts []lifecycle.PluginAmount) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[at.uid]
	if p == nil || p.answers[at.container][resource].answer == nil {
		return // the pod has ended
	}
	if p.reports == nil {
		p.reports = map[string]map[string]containerReport{}
	}
	if p.reports[at.container] == nil {
		p.reports[at.container] = map[string]containerReport{}
	}
	if amounts == nil {
		amounts = p.reports[at.container][resource].amounts
	}
	p.reports[at.container][resource] = containerReport{amounts, at.answer, m.opts.Now()}
}

// reportedAmounts converts a plugin's report. It returns nil if the report is about another container, or has too many
// resources.
func reportedAmounts(at containerAllocation, resp *api.GetTopologyAwareResourcesResponse) []lifecycle.PluginAmount {
	reported := resp.GetContainerTopologyAwareResources()
	all := reported.GetAllocatedResources()
	if uid := resp.GetPodUid(); uid != "" && uid != at.uid || reported.GetContainerName() != "" && reported.GetContainerName() != at.container || len(all) > maxPlugins {
		return nil
	}
	out := []lifecycle.PluginAmount{}
	for _, name := range sortedKeys(all) {
		r := all[name]
		if r == nil || !isResourceName(name) {
			continue
		}
		out = append(out, lifecycle.PluginAmount{
			Resource: name, IsNodeResource: r.GetIsNodeResource(), IsScalarResource: r.GetIsScalarResource(),
			Total: finiteOrZero(r.GetAggregatedQuantity()), ByNode: convertQuantities(r.GetTopologyAwareQuantityList()),
			OtherTotal: finiteOrZero(r.GetOriginalAggregatedQuantity()), OtherByNode: convertQuantities(r.GetOriginalTopologyAwareQuantityList()),
		})
	}
	return out
}
