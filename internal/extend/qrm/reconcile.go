package qrm

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// reconcileAll asks all plugins for their allocations until ctx ends. It asks them in parallel, so a plugin
// that hangs does not delay the others.
func (m *Manager) reconcileAll(ctx context.Context) {
	tick := time.NewTicker(m.o.Reconcile)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var all sync.WaitGroup
		for _, p := range m.all() {
			if p.unlisted() || p.options.reconcile {
				all.Go(func() { m.reconcile(ctx, p) })
			}
		}
		all.Wait()
	}
}

// reconcile reads the allocations of one plugin, and stores them if they differ from its last answers. It
// allocates again what the plugin no longer has.
func (m *Manager) reconcile(ctx context.Context, p *plugin) {
	var resp api.GetResourcesAllocationResponse
	before := m.held(p.resource)
	if err := p.call(ctx, "GetResourcesAllocation", &api.GetResourcesAllocationRequest{}, &resp, nil); err != nil {
		return // the state of the plugin has the error
	}
	pods := m.adopt(p.resource, resp.GetPodResources())
	for _, at := range before {
		of := resp.GetPodResources()[at.uid].GetContainerResources()
		now := of[at.container]
		if now == nil && at.ofPod > 0 {
			now = of[""] // some name no container for what a pod has
		}
		if now == nil {
			now = m.again(ctx, p, at)
		}
		if now != nil && m.replace(p.resource, at, now) && !slices.Contains(pods, at.uid) {
			pods = append(pods, at.uid)
		}
	}
	if len(pods) > 0 {
		m.wake()
		if m.o.Changed != nil {
			m.o.Changed(pods)
		}
	}
}

// adopt stores the allocations of a plugin for pods of the node that this agent does not know: an earlier
// agent asked for them, and its state is lost. Allocations for other pods are released if the plugin still
// has them at the next call. It returns the adopted pods.
func (m *Manager) adopt(resource string, pods map[string]*api.ContainerResources) (taken []string) {
	var unknown []string
	m.mu.Lock()
	for _, uid := range sortedKeys(pods) {
		if !m.pods[uid].knows(resource, pods[uid]) {
			unknown = append(unknown, uid)
		}
	}
	synced := m.synced
	m.mu.Unlock()
	if len(unknown) == 0 || m.o.Live == nil || !synced {
		return nil
	}
	live := m.o.Live()
	if live == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, uid := range unknown {
		at := removal{resource, uid}
		switch {
		case m.removals[resource][uid] || m.removing[at] != nil || m.pods[uid].knows(resource, pods[uid]):
		case live[uid]:
			m.take(resource, uid, pods[uid])
			taken = append(taken, uid)
			delete(m.unclaimed, at)
		case m.unclaimed[at]:
			delete(m.unclaimed, at)
			m.releaseLater(resource, uid)
		case len(m.unclaimed) < maxRemovals:
			m.unclaimed[at] = true
		}
	}
	return taken
}

// knows reports whether the stored answers have all containers that a plugin has for the pod; p is nil for
// an unknown pod.
func (p *pod) knows(resource string, of *api.ContainerResources) bool {
	if p == nil || !p.asked[resource] {
		return false
	}
	for ctr := range of.GetContainerResources() {
		if p.answers[ctr][resource].answer == nil {
			return false
		}
	}
	return true
}

// take stores a plugin's allocations for a pod without stored answers. The caller holds mu.
func (m *Manager) take(resource, uid string, of *api.ContainerResources) {
	p := m.pods[uid]
	if p == nil {
		p = newPod()
		m.pods[uid] = p
	}
	p.asked[resource] = true
	for ctr, answer := range of.GetContainerResources() {
		if p.answers[ctr] == nil {
			p.answers[ctr] = map[string]stored{}
		}
		p.forgetMigrated(ctr, resource, answer)
		if p.answers[ctr][resource].answer == nil {
			req := &api.ResourceRequest{PodUid: uid, ContainerName: ctr, ResourceName: resource}
			p.answers[ctr][resource] = stored{request: req, answer: answer, adopted: true}
		}
	}
	m.wake()
}

// forgetMigrated removes what a checkpoint said about resources that a plugin answers for beside its
// own.
func (p *pod) forgetMigrated(container, resource string, now *api.ResourceAllocation) {
	if !p.migrated {
		return
	}
	for name := range now.GetResourceAllocation() {
		if name != resource && p.answers[container][name].adopted {
			delete(p.answers[container], name)
		}
	}
}

// place is a container with an answer of one plugin.
type place struct {
	uid, container string
	stored
}

// held returns the containers for which a plugin has allocated something, in order.
func (m *Manager) held(resource string) (out []place) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, uid := range sortedKeys(m.pods) {
		for _, ctr := range sortedKeys(m.pods[uid].answers) {
			if s, has := m.pods[uid].answers[ctr][resource]; has {
				out = append(out, place{uid, ctr, s})
			}
		}
	}
	return out
}

// again repeats an allocation that the plugin no longer has, on the same NUMA nodes. It returns nil if the
// plugin refuses, and for init containers, which have ended.
func (m *Manager) again(ctx context.Context, p *plugin, at place) *api.ResourceAllocation {
	if at.adopted || at.request.GetContainerType() == api.ContainerType_INIT {
		return nil
	}
	answer, _, err := m.askFor(ctx, p, at.request, at.ofPod)
	if err != nil {
		m.o.Log.Warn("a resource plugin does not know a container any more, and does not allocate its resource again",
			logkey.Key, p.resource, logkey.Pod, at.request.GetPodName(), logkey.Container, at.container, logkey.Err, err)
		return nil
	}
	return answer
}

// replace stores an answer. It returns false if the answer is the last one, or if the pod has ended.
func (m *Manager) replace(resource string, at place, now *api.ResourceAllocation) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[at.uid]
	if p == nil {
		return false
	}
	have, is := p.answers[at.container][resource]
	if !is || have.answer != at.answer || proto.Equal(have.answer, now) {
		return false // unchanged, or newer than the list
	}
	p.answers[at.container][resource] = stored{have.request, now, have.adopted, have.ahead, have.ofPod}
	p.forgetMigrated(at.container, resource, now)
	return true
}

// Values returns what plugins have allocated for a pod's containers, by container name.
func (m *Manager) Values(uid string) map[string][]lifecycle.Value {
	m.mu.Lock()
	answers := map[string]map[string]*api.ResourceAllocation{}
	if p := m.pods[uid]; p != nil {
		for ctr, of := range p.answers {
			answers[ctr] = map[string]*api.ResourceAllocation{}
			for resource, s := range of {
				answers[ctr][resource] = s.answer
			}
		}
	}
	m.mu.Unlock()
	out := map[string][]lifecycle.Value{}
	for ctr, of := range answers {
		for _, resource := range sortedKeys(of) {
			values, _ := valuesOf(resource, of[resource])
			out[ctr] = append(out[ctr], values...)
		}
	}
	return out
}
