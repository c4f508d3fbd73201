package qrm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

const (
	// The methods of the protocol for associated devices.
	deviceHintsMethod   = "GetAssociatedDeviceTopologyHints"
	deviceAnswerMethod  = "AllocateAssociatedDevice"
	deviceUpdatesMethod = "UpdateAllocatableAssociatedDevices"
	// healthyDevice is the health of each device that the manager sends to plugins.
	healthyDevice = "Healthy"
	// maxAssociated limits the associated devices of one container. maxKnownDevices limits the devices of the node that
	// the manager sends to plugins.
	maxAssociated, maxKnownDevices = 1024, 16384
)

// association is a part of a question: it asks one plugin about devices with one resource name. Such associated devices
// are chosen together with the plugin's own resource, for example GPUs together with GPU memory. But the kubelet
// assigns the devices before a container is created, so the plugin must choose the assigned devices.
type association struct {
	plugin         *plugin
	deviceResource string // the resource name of the devices
	request        *api.AssociatedDeviceRequest
	assigned       []string // ids of the devices that the kubelet has assigned, sorted; empty if the kubelet reports none
}

// addAssociations adds associations to the question. The plugin's options name resources of associated devices. For
// each such resource that the container requests, addAssociations adds one association.
func (q *Question) addAssociations(p *plugin, request *api.ResourceRequest, requests lifecycle.Amounts) {
	for _, name := range slices.Compact(slices.Sorted(slices.Values(p.options.associatedDevices))) {
		if n := requests[name]; n > 0 && n <= maxAssociated && isResourceName(name) {
			one := &api.DeviceRequest{DeviceName: name, DeviceRequest: uint64(n)}
			q.associations = append(q.associations, &association{plugin: p, deviceResource: name, request: &api.AssociatedDeviceRequest{
				ResourceRequest: proto.CloneOf(request), AccompanyResourceName: p.resource, DeviceName: name, DeviceRequest: []*api.DeviceRequest{one},
			}})
		}
	}
}

// deviceHints asks plugins on which NUMA nodes the associated devices are available.
func (q *Question) deviceHints(ctx context.Context) (out []lifecycle.ResourceHints, problems []lifecycle.Problem) {
	if len(q.associations) == 0 {
		return nil, nil
	}
	if q.manager.opts.AssignedDevices != nil {
		limited, cancel := context.WithTimeout(ctx, q.manager.opts.Timeout)
		idsByResource := q.manager.opts.AssignedDevices(limited, q.pod, q.container)
		cancel()
		for _, d := range q.associations {
			if ids := idsByResource[d.deviceResource]; len(ids) <= maxAssociated {
				d.assigned = slices.Compact(slices.Sorted(slices.Values(ids)))
				d.request.DeviceRequest[0].AvailableDevices = d.assigned
			}
		}
	}
	answers := make([][]lifecycle.ResourceHints, len(q.associations))
	failed := make([][]lifecycle.Problem, len(q.associations))
	q.forEachAssociation(func(i int, d *association) {
		if d.plugin.options.topologyAligned && len(d.assigned) > 0 && !d.plugin.lacksMethod(deviceHintsMethod) {
			answers[i], failed[i] = d.hints(ctx)
		}
	})
	for i, d := range q.associations {
		if len(d.assigned) == 0 && !q.beforeCreation {
			problems = append(problems, lifecycle.Problem{
				Hook: lifecycle.ResourcePluginName, Key: d.plugin.resource, Value: d.deviceResource, Warning: true,
				Reason: "the kubelet has not reported the devices of the container (podspec.kubelet.podResourcesSocket)", Then: "the agent does not ask the plugin about the devices",
			})
		}
		out, problems = append(out, answers[i]...), append(problems, failed[i]...)
	}
	return out, problems
}

// forEachAssociation calls a function for all associations of a question in parallel, and waits for all calls.
func (q *Question) forEachAssociation(do func(i int, d *association)) {
	var all sync.WaitGroup
	for i, d := range q.associations {
		all.Go(func() { do(i, d) })
	}
	all.Wait()
}

// hints asks one plugin for hints about the devices. It returns nil if the plugin has no preference, that is, if the
// answer has no list of hints.
func (d *association) hints(ctx context.Context) ([]lifecycle.ResourceHints, []lifecycle.Problem) {
	var resp api.AssociatedDeviceHintsResponse
	err := d.plugin.call(ctx, deviceHintsMethod, d.request, &resp, nil)
	switch {
	case isUnimplemented(err):
		d.plugin.markUnimplemented(deviceHintsMethod)
		return nil, nil
	case resultOf(err) == Failed:
		p := callProblem(d.plugin, deviceHintsMethod, err, "the agent assumes that no NUMA node has the devices")
		return []lifecycle.ResourceHints{{Resource: d.deviceResource, Hints: []lifecycle.NUMAHint{}}}, []lifecycle.Problem{p}
	case err != nil:
		return nil, []lifecycle.Problem{callProblem(d.plugin, deviceHintsMethod, err, "the agent places the container without hints for the devices")}
	case resp.GetDeviceHints() == nil:
		return nil, nil
	}
	return hintsFrom(d.plugin.resource, map[string]*api.ListOfTopologyHints{d.deviceResource: resp.GetDeviceHints()}, nil)
}

// allocateDevices notifies plugins of the devices that the kubelet assigned. If a plugin chooses other devices,
// allocateDevices returns a problem, because the agent cannot change the assigned devices.
func (q *Question) allocateDevices(ctx context.Context, at *lifecycle.Affinity) (problems []lifecycle.Problem) {
	failed := make([]*lifecycle.Problem, len(q.associations))
	q.forEachAssociation(func(i int, d *association) {
		if len(d.assigned) == 0 || d.plugin.lacksMethod(deviceAnswerMethod) {
			return
		}
		if p, bad := q.allocateDevice(ctx, d, at); bad {
			failed[i] = &p
		}
	})
	for _, p := range failed {
		if p != nil {
			problems = append(problems, *p)
		}
	}
	return problems
}

// allocateDevice notifies one plugin of the devices that the kubelet assigned. bad reports whether there is a problem.
func (q *Question) allocateDevice(ctx context.Context, d *association, at *lifecycle.Affinity) (problem lifecycle.Problem, bad bool) {
	const then = "the container has the devices that the kubelet assigned"
	if d.plugin.options.topologyAligned && at != nil {
		h := at.HintFor(d.deviceResource)
		hint := &api.TopologyHint{Preferred: h.Preferred}
		for _, id := range h.Nodes {
			hint.Nodes = append(hint.Nodes, uint64(max(id, 0))) //nolint:gosec // an id is not negative
		}
		d.request.DeviceRequest[0].Hint, d.request.ResourceRequest = hint, proto.CloneOf(d.request.GetResourceRequest())
		d.request.ResourceRequest.Hint = hint
	}
	if err := q.manager.cancelRelease(ctx, d.plugin.resource, q.pod.UID); err != nil {
		return callProblem(d.plugin, deviceAnswerMethod, err, then), true
	}
	q.manager.noteAsked(d.request.GetResourceRequest(), q.beforeCreation)
	var resp api.AssociatedDeviceAllocationResponse
	err := d.plugin.call(ctx, deviceAnswerMethod, d.request, &resp, nil)
	switch {
	case isUnimplemented(err):
		d.plugin.markUnimplemented(deviceAnswerMethod)
		return problem, false
	case err != nil:
		return callProblem(d.plugin, deviceAnswerMethod, err, then), true
	case resp.GetAllocationResult() == nil:
		return problem, false
	}
	got := slices.Sorted(slices.Values(resp.GetAllocationResult().GetAllocatedDevices()))
	if slices.Equal(slices.Compact(got), d.assigned) {
		return problem, false
	}
	err = fmt.Errorf("the plugin chooses %s as devices of %s, but the kubelet has assigned %s", idList(got), d.deviceResource, idList(d.assigned))
	return callProblem(d.plugin, deviceAnswerMethod, err, then), true
}

// idList joins ids for a message, at most 8 of them.
func idList(ids []string) string {
	const most = 8
	var parts []string
	for _, id := range ids[:min(len(ids), most)] {
		parts = append(parts, shorten(id))
	}
	if len(ids) > most {
		parts = append(parts, fmt.Sprintf("%d more", len(ids)-most))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// updateDevices sends each plugin the list of the kubelet's devices that are associated with the plugin's resource, if
// the list has changed.
func (m *Manager) updateDevices(ctx context.Context) {
	var want []*plugin
	for _, p := range m.sortedPlugins() {
		if len(p.options.associatedDevices) > 0 && !p.lacksMethod(deviceUpdatesMethod) {
			want = append(want, p)
		}
	}
	if len(want) == 0 || m.opts.NodeDevices == nil {
		return
	}
	limited, cancel := context.WithTimeout(ctx, m.opts.Timeout)
	known, err := m.opts.NodeDevices(limited)
	cancel()
	if err != nil || len(known) > maxKnownDevices {
		return // the next call of updateDevices tries again
	}
	byResource := map[string][]*api.AssociatedDevice{}
	for _, d := range known {
		one := &api.AssociatedDevice{ID: d.ID, Health: healthyDevice}
		for _, id := range d.Nodes {
			if one.Topology == nil {
				one.Topology = &api.TopologyInfo{}
			}
			one.Topology.Nodes = append(one.Topology.Nodes, &api.NUMANode{ID: int64(id)})
		}
		byResource[d.Resource] = append(byResource[d.Resource], one)
	}
	var all sync.WaitGroup
	for _, p := range want {
		all.Go(func() { p.updateDevices(ctx, byResource) })
	}
	all.Wait()
}

// updateDevices sends one plugin the lists of its associated devices that have changed. The caller must not make two
// calls for the same plugin at the same time.
func (p *plugin) updateDevices(ctx context.Context, byResource map[string][]*api.AssociatedDevice) {
	for _, name := range p.options.associatedDevices {
		req := &api.UpdateAllocatableAssociatedDevicesRequest{DeviceName: name, Devices: byResource[name]}
		slices.SortFunc(req.Devices, func(a, b *api.AssociatedDevice) int { return strings.Compare(a.GetID(), b.GetID()) })
		last := p.sentDevices[name]
		if last == nil && len(req.GetDevices()) == 0 || last != nil && proto.Equal(last, req) {
			continue
		}
		err := p.call(ctx, deviceUpdatesMethod, req, &api.UpdateAllocatableAssociatedDevicesResponse{}, nil)
		switch {
		case isUnimplemented(err):
			p.markUnimplemented(deviceUpdatesMethod)
			return
		case err != nil:
			return
		}
		if p.sentDevices == nil {
			p.sentDevices = map[string]*api.UpdateAllocatableAssociatedDevicesRequest{}
		}
		p.sentDevices[name] = req
	}
}
