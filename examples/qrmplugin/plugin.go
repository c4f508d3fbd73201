package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
)

// nic is one interface, and the NUMA node that it is near.
type nic struct {
	name string
	node uint64
}

// plugin allocates interfaces to containers. A call of the API that it does not implement returns the code
// Unimplemented.
type plugin struct {
	api.UnimplementedResourcePluginServer

	settings settings

	mu          sync.Mutex                     // guards allocations
	allocations map[string]map[string][]string // the names of interfaces, by pod UID and container
}

// newPlugin makes a plugin with the allocations that are stored in its state file.
func newPlugin(s settings) (*plugin, error) {
	p := &plugin{settings: s, allocations: map[string]map[string][]string{}}
	if s.state == "" {
		return p, nil
	}
	data, err := os.ReadFile(s.state)
	if errors.Is(err, os.ErrNotExist) {
		return p, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &p.allocations)
	}
	if err != nil {
		return nil, fmt.Errorf("read the stored allocations: %w", err)
	}
	return p, nil
}

// save stores the allocations. It replaces the file atomically.
func (p *plugin) save() error {
	if p.settings.state == "" {
		return nil
	}
	data, err := json.Marshal(p.allocations)
	if err == nil {
		err = os.WriteFile(p.settings.state+".new", data, 0o600)
	}
	if err == nil {
		err = os.Rename(p.settings.state+".new", p.settings.state)
	}
	return err
}

// options tells the manager two things: the plugin gives topology hints, and the manager must poll
// GetResourcesAllocation.
func (p *plugin) options() *api.ResourcePluginOptions {
	return &api.ResourcePluginOptions{WithTopologyAlignment: true, NeedReconcile: true}
}

// GetResourcePluginOptions tells the manager which calls the plugin needs.
func (p *plugin) GetResourcePluginOptions(context.Context, *api.Empty) (*api.ResourcePluginOptions, error) {
	return p.options(), nil
}

// requestedInterfaces returns the number of interfaces in a request, rounded up. It returns an error if this number is
// below 1, or if the node has fewer interfaces.
func (p *plugin) requestedInterfaces(r *api.ResourceRequest) (int, error) {
	n := math.Ceil(r.GetResourceRequests()[p.settings.resource])
	if !(n >= 1) || n > float64(len(p.settings.nics)) { // NaN is not a valid amount either
		return 0, status.Errorf(codes.ResourceExhausted, "%v interfaces are requested, but the node has %d", n, len(p.settings.nics))
	}
	return int(n), nil
}

// freeInterfaces returns the interfaces that are not allocated, in order.
func (p *plugin) freeInterfaces() []nic {
	used := map[string]bool{}
	for _, pod := range p.allocations {
		for _, names := range pod {
			for _, name := range names {
				used[name] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(p.settings.nics), func(n nic) bool { return used[n.name] })
}

// GetTopologyHints returns each NUMA node that has enough free interfaces, and the set of all nodes with free
// interfaces. Single nodes are preferred. If no single node has enough, the set of all nodes is preferred. For a
// container that already has interfaces, GetTopologyHints returns only the nodes of these interfaces.
func (p *plugin) GetTopologyHints(_ context.Context, r *api.ResourceRequest) (*api.ResourceHintsResponse, error) {
	n, err := p.requestedInterfaces(r)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if had := p.allocations[r.GetPodUid()][r.GetContainerName()]; len(had) > 0 {
		return p.hints(r, &api.TopologyHint{Nodes: p.nodesOf(had), Preferred: true}), nil
	}
	count := map[uint64]int{}
	for _, f := range p.freeInterfaces() {
		count[f.node]++
	}
	var out []*api.TopologyHint
	all := 0
	nodes := slices.Sorted(maps.Keys(count))
	for _, node := range nodes {
		if all += count[node]; count[node] >= n {
			out = append(out, &api.TopologyHint{Nodes: []uint64{node}, Preferred: true})
		}
	}
	if all < n {
		return nil, status.Errorf(codes.ResourceExhausted, "%d interfaces are free, but %d are requested", all, n)
	}
	if len(nodes) > 1 {
		out = append(out, &api.TopologyHint{Nodes: nodes, Preferred: len(out) == 0})
	}
	return p.hints(r, out...), nil
}

// hints returns a response with these hints for the container of the request.
func (p *plugin) hints(r *api.ResourceRequest, list ...*api.TopologyHint) *api.ResourceHintsResponse {
	return &api.ResourceHintsResponse{
		PodUid: r.GetPodUid(), PodNamespace: r.GetPodNamespace(), PodName: r.GetPodName(), ContainerName: r.GetContainerName(),
		ResourceName: p.settings.resource, ResourceHints: map[string]*api.ListOfTopologyHints{p.settings.resource: {Hints: list}},
	}
}

// nodesOf returns the NUMA nodes of some interfaces.
func (p *plugin) nodesOf(names []string) []uint64 {
	var out []uint64
	for _, n := range p.settings.nics {
		if slices.Contains(names, n.name) {
			out = append(out, n.node)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Allocate allocates interfaces to a container, first those on the hint's nodes. If the container already has
// interfaces, Allocate returns these.
func (p *plugin) Allocate(_ context.Context, r *api.ResourceRequest) (*api.ResourceAllocationResponse, error) {
	n, err := p.requestedInterfaces(r)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	uid, ctr := r.GetPodUid(), r.GetContainerName()
	names := p.allocations[uid][ctr]
	if len(names) == 0 {
		free := p.freeInterfaces()
		if len(free) < n {
			return nil, status.Errorf(codes.ResourceExhausted, "%d interfaces are free, but %d are requested", len(free), n)
		}
		near := r.GetHint().GetNodes()
		slices.SortStableFunc(free, func(a, b nic) int { return distance(near, a) - distance(near, b) })
		for _, f := range free[:n] {
			names = append(names, f.name)
		}
		if p.allocations[uid] == nil {
			p.allocations[uid] = map[string][]string{}
		}
		p.allocations[uid][ctr] = names
		if err := p.save(); err != nil {
			delete(p.allocations[uid], ctr)
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	return &api.ResourceAllocationResponse{
		PodUid: uid, PodNamespace: r.GetPodNamespace(), PodName: r.GetPodName(), ContainerName: ctr,
		ResourceName: p.settings.resource, AllocationResult: p.allocation(names),
	}, nil
}

// distance returns 0 for an interface on one of the nodes, and 1 for any other interface.
func distance(nodes []uint64, n nic) int {
	if slices.Contains(nodes, n.node) {
		return 0
	}
	return 1
}

// allocation returns the answer about a container that has the interfaces with these names.
func (p *plugin) allocation(names []string) *api.ResourceAllocation {
	text := strings.Join(names, ",")
	info := &api.ResourceAllocationInfo{
		IsNodeResource: true, IsScalarResource: true, AllocatedQuantity: float64(len(names)), AllocationResult: text,
		Envs: map[string]string{"NICS": text}, Annotations: map[string]string{"example.com/nics": text},
		ResourceHints:       &api.ListOfTopologyHints{Hints: []*api.TopologyHint{{Nodes: p.nodesOf(names), Preferred: true}}},
		TopologyAssignments: map[uint64]uint64{},
	}
	for _, n := range p.settings.nics {
		if slices.Contains(names, n.name) {
			info.TopologyAssignments[n.node]++
		}
	}
	if host, inside, is := strings.Cut(p.settings.mount, ":"); is {
		info.Mounts = []*api.Mount{{HostPath: host, ContainerPath: inside, ReadOnly: true}}
	}
	if p.settings.device != "" {
		info.Devices = []*api.DeviceSpec{{HostPath: p.settings.device, ContainerPath: p.settings.device, Permissions: "rw"}}
	}
	return &api.ResourceAllocation{ResourceAllocation: map[string]*api.ResourceAllocationInfo{p.settings.resource: info}}
}

// GetResourcesAllocation returns the interfaces of all containers.
func (p *plugin) GetResourcesAllocation(context.Context, *api.GetResourcesAllocationRequest) (*api.GetResourcesAllocationResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := &api.GetResourcesAllocationResponse{PodResources: map[string]*api.ContainerResources{}}
	for uid, pod := range p.allocations {
		of := &api.ContainerResources{ContainerResources: map[string]*api.ResourceAllocation{}}
		for ctr, names := range pod {
			of.ContainerResources[ctr] = p.allocation(names)
		}
		out.PodResources[uid] = of
	}
	return out, nil
}

// RemovePod releases a pod's interfaces. It does nothing for an unknown pod.
func (p *plugin) RemovePod(_ context.Context, r *api.RemovePodRequest) (*api.RemovePodResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	had, known := p.allocations[r.GetPodUid()]
	if !known {
		return &api.RemovePodResponse{}, nil
	}
	delete(p.allocations, r.GetPodUid())
	if err := p.save(); err != nil {
		p.allocations[r.GetPodUid()] = had
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &api.RemovePodResponse{}, nil
}
