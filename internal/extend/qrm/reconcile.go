package qrm

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// reconcileAll asks plugins for their allocations until ctx ends. It asks plugins with the option NeedReconcile at
// regular intervals, and each other plugin once. It asks all plugins in parallel, so that a plugin that hangs does not
// delay the calls of other plugins. At each interval it also sends plugins the lists of their associated devices.
func (m *Manager) reconcileAll(ctx context.Context) {
	tick := time.NewTicker(m.opts.ReconcileInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var all sync.WaitGroup
		all.Go(func() { m.updateDevices(ctx) })
		for _, p := range m.sortedPlugins() {
			if p.markAllocationsRequested() || p.options.needReconcile {
				all.Go(func() { m.reconcile(ctx, p) })
			}
		}
		all.Wait()
	}
}

// reconcile reads the allocations of one plugin, and stores those that differ from the stored allocations. If the
// plugin does not list a stored allocation, reconcile asks the plugin to allocate the resource again.
func (m *Manager) reconcile(ctx context.Context, p *plugin) {
	var resp api.GetResourcesAllocationResponse
	before := m.containerAllocations(p.resource)
	if err := p.call(ctx, "GetResourcesAllocation", &api.GetResourcesAllocationRequest{}, &resp, nil); err != nil {
		return // call has stored the error, and States returns it
	}
	pods := m.adoptAllocations(p.resource, resp.GetPodResources())
	for _, at := range before {
		allocations := resp.GetPodResources()[at.uid].GetContainerResources()
		now := allocations[at.container]
		if now == nil && at.podAmount > 0 {
			now = allocations[""] // some plugins list the allocation of a whole pod without a container name
		}
		if now == nil {
			now = m.repeatAllocation(ctx, p, at)
		}
		if now != nil && m.replaceAnswer(p.resource, at, now) && !slices.Contains(pods, at.uid) {
			pods = append(pods, at.uid)
		}
	}
	if len(pods) > 0 {
		m.wake()
		if m.opts.AllocationsChanged != nil {
			m.opts.AllocationsChanged(pods)
		}
	}
}

// adoptAllocations stores a plugin's allocations that the manager lacks, because the state of an earlier agent was
// lost. It stores only allocations for pods that the node has, and returns the UIDs of these pods. Suppose that a
// plugin lists allocations for a pod that the node does not have. If the next call finds the same, adoptAllocations
// releases these allocations.
func (m *Manager) adoptAllocations(resource string, pods map[string]*api.ContainerResources) (taken []string) {
	var unstored []string
	m.mu.Lock()
	maps.DeleteFunc(m.unknownPods, func(at removal, _ bool) bool { return at.resource == resource && pods[at.uid] == nil })
	for _, uid := range sortedKeys(pods) {
		if !m.pods[uid].hasAnswersFor(resource, pods[uid]) {
			unstored = append(unstored, uid)
		}
	}
	releasedEnded := m.releasedEnded
	m.mu.Unlock()
	if len(unstored) == 0 || m.opts.LivePods == nil || !releasedEnded {
		return nil
	}
	live := m.opts.LivePods()
	if live == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, uid := range unstored {
		at := removal{resource, uid}
		switch {
		case m.removals[resource][uid] || m.removalsInProgress[at] != nil || m.pods[uid].hasAnswersFor(resource, pods[uid]):
		case live[uid]:
			m.storeAllocations(resource, uid, pods[uid])
			taken = append(taken, uid)
			delete(m.unknownPods, at)
		case m.unknownPods[at]:
			delete(m.unknownPods, at)
			m.releaseLater(resource, uid)
		case len(m.unknownPods) < maxRemovals:
			m.unknownPods[at] = true
		}
	}
	return taken
}

// hasAnswersFor reports whether the manager has a stored answer for each container in a plugin's allocations for the
// pod. p may be nil.
func (p *pod) hasAnswersFor(resource string, of *api.ContainerResources) bool {
	if p == nil || !p.askedResources[resource] {
		return false
	}
	for ctr := range of.GetContainerResources() {
		if p.answers[ctr][resource].answer == nil {
			return false
		}
	}
	return true
}

// storeAllocations stores a plugin's allocations for those containers of a pod that have no stored answer of the
// plugin. The caller holds mu.
func (m *Manager) storeAllocations(resource, uid string, of *api.ContainerResources) {
	p := m.pods[uid]
	if p == nil {
		p = newPod()
		m.pods[uid] = p
	}
	p.askedResources[resource] = true
	for ctr, answer := range of.GetContainerResources() {
		if p.answers[ctr] == nil {
			p.answers[ctr] = map[string]storedAllocation{}
		}
		p.removeMigrated(ctr, resource, answer)
		if p.answers[ctr][resource].answer == nil {
			req := &api.ResourceRequest{PodUid: uid, ContainerName: ctr, ResourceName: resource}
			p.answers[ctr][resource] = storedAllocation{request: req, answer: answer, adopted: true}
		}
	}
	m.wake()
}

// removeMigrated removes allocations that come from a checkpoint, because the checkpoint lists each resource
// separately. answer is an allocation by the plugin of resource. If answer also has other resources, removeMigrated
// removes the container's stored allocations of these other resources.
func (p *pod) removeMigrated(container, resource string, answer *api.ResourceAllocation) {
	if !p.migrated {
		return
	}
	for name := range answer.GetResourceAllocation() {
		if name != resource && p.answers[container][name].adopted {
			delete(p.answers[container], name)
		}
	}
}

// containerAllocation is a stored allocation of one plugin, with the pod UID and the name of the container.
type containerAllocation struct {
	uid, container string
	storedAllocation
}

// containerAllocations returns the containers with a stored answer of a plugin, sorted.
func (m *Manager) containerAllocations(resource string) (out []containerAllocation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, uid := range sortedKeys(m.pods) {
		for _, ctr := range sortedKeys(m.pods[uid].answers) {
			if s, has := m.pods[uid].answers[ctr][resource]; has {
				out = append(out, containerAllocation{uid, ctr, s})
			}
		}
	}
	return out
}

// repeatAllocation asks the plugin to make an allocation again that the plugin has lost, on the same NUMA nodes. It
// returns nil if the call fails. It also returns nil for init containers, which have probably ended, and for adopted
// allocations, because their original requests are unknown.
func (m *Manager) repeatAllocation(ctx context.Context, p *plugin, at containerAllocation) *api.ResourceAllocation {
	if at.adopted || at.request.GetContainerType() == api.ContainerType_INIT {
		return nil
	}
	answer, _, err := m.requestAllocation(ctx, p, at.request, at.podAmount)
	if err != nil {
		m.opts.Log.Warn("a resource plugin has lost the allocation for a container, and does not allocate the resource again",
			logkey.Key, p.resource, logkey.Pod, at.request.GetPodName(), logkey.Container, at.container, logkey.Err, err)
		return nil
	}
	return answer
}

// replaceAnswer stores the plugin's new answer for the allocation in old. It returns false and stores nothing if the
// pod has ended, if the stored answer is not the one in old any more, or if the stored answer is equal to the new
// answer.
func (m *Manager) replaceAnswer(resource string, old containerAllocation, answer *api.ResourceAllocation) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[old.uid]
	if p == nil {
		return false
	}
	have, is := p.answers[old.container][resource]
	if !is || have.answer != old.answer || proto.Equal(have.answer, answer) {
		return false
	}
	p.answers[old.container][resource] = storedAllocation{request: have.request, answer: answer, adopted: have.adopted, beforeCreation: have.beforeCreation, podAmount: have.podAmount}
	p.removeMigrated(old.container, resource, answer)
	return true
}

// Values returns the values of the stored allocations for a pod's containers, by container name.
func (m *Manager) Values(uid string) map[string][]lifecycle.Value {
	m.mu.Lock()
	answers := map[string]map[string]*api.ResourceAllocation{}
	if p := m.pods[uid]; p != nil {
		for ctr, allocations := range p.answers {
			answers[ctr] = map[string]*api.ResourceAllocation{}
			for resource, s := range allocations {
				answers[ctr][resource] = s.answer
			}
		}
	}
	m.mu.Unlock()
	out := map[string][]lifecycle.Value{}
	for ctr, allocations := range answers {
		for _, resource := range sortedKeys(allocations) {
			values, _ := valuesOf(m.opts.DevDirectory, resource, allocations[resource])
			out[ctr] = append(out[ctr], values...)
		}
	}
	return out
}
