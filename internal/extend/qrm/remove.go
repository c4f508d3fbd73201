package qrm

import (
	"context"
	"maps"
	"math"
	"time"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// removal names a release: the plugin of resource must release its allocations for the pod uid.
type removal struct{ resource, uid string }

const (
	// removalRetryInterval is the interval at which the manager repeats the releases that plugins have not confirmed.
	removalRetryInterval = 2 * time.Second
	// saveDelay is the time for which the manager collects changes before it saves the state of all pods.
	saveDelay = 100 * time.Millisecond
	// If saves are slow, the manager collects changes for a longer time: for saveDelayFactor times the duration of the
	// last save, but at most for maxSaveDelay. If the agent crashes before a save, no allocation is lost, because the
	// plugins and the containers' annotations also have the allocations.
	saveDelayFactor, maxSaveDelay = 30, 3 * time.Second
	// maxRemovals limits the pending releases of one plugin. Katalyst's plugins also release the allocations of ended
	// pods without a request.
	maxRemovals = 4096
)

// Remove queues the release of a pod's allocations. If a plugin does not answer, the manager tries again later. For an
// unknown pod, Remove queues a release by each plugin, because an earlier agent may have requested allocations.
func (m *Manager) Remove(uid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removeLocked(uid)
}

// removeLocked is the method Remove for callers that hold mu.
func (m *Manager) removeLocked(uid string) {
	asked := map[string]bool{}
	p := m.pods[uid]
	if p != nil {
		maps.Copy(asked, p.askedResources)
	}
	if p == nil || p.migrated {
		for name := range m.plugins {
			asked[name] = true
		}
	}
	delete(m.pods, uid)
	for name := range asked {
		m.releaseLater(name, uid)
	}
}

// releaseLater queues a release. It drops the release if maxRemovals releases are pending. The caller holds mu.
func (m *Manager) releaseLater(resource, uid string) {
	if m.removals[resource] == nil {
		m.removals[resource] = map[string]bool{}
	}
	if len(m.removals[resource]) >= maxRemovals {
		m.opts.Log.Warn("too many releases of pods by a resource plugin are pending; the agent does not ask the plugin to release this pod", logkey.Key, resource, logkey.UID, uid)
		return
	}
	m.removals[resource][uid] = true
	m.wake()
}

// ReleaseEnded releases the allocations of all ended pods. live has the UIDs of the pods that the runtime has; all
// other pods have ended.
func (m *Manager) ReleaseEnded(live map[string]bool) {
	for _, uid := range m.podUIDs() {
		if !live[uid] {
			m.Remove(uid)
		}
	}
	m.mu.Lock()
	m.releasedEnded = true
	m.mu.Unlock()
}

// cancelRelease cancels the pending release of a pod, because the pod gets a new allocation. If a release is in
// progress, cancelRelease waits until the release has ended.
func (m *Manager) cancelRelease(ctx context.Context, resource, uid string) error {
	for {
		m.mu.Lock()
		delete(m.removals[resource], uid)
		under := m.removalsInProgress[removal{resource, uid}]
		m.mu.Unlock()
		if under == nil {
			return nil
		}
		select {
		case <-under:
		case <-ctx.Done():
			return &callError{result: TimedOut, message: "the plugin did not release the pod's earlier allocations in time"}
		}
	}
}

// saveAndRelease saves the state after changes, and asks plugins to release pods, until ctx ends.
func (m *Manager) saveAndRelease(ctx context.Context) {
	tick := time.NewTicker(removalRetryInterval)
	defer tick.Stop()
	due := time.NewTimer(math.MaxInt64) // fires at the time of the next save
	defer due.Stop()
	waiting, pause := false, saveDelay
	for {
		changed := false
		select {
		case <-ctx.Done():
			return
		case <-m.workPending:
			changed = true
		case <-tick.C:
		case <-due.C:
			waiting = false
			begin := m.opts.Now()
			m.saveState()
			pause = min(max(saveDelay, saveDelayFactor*m.opts.Now().Sub(begin)), maxSaveDelay)
			continue
		}
		for _, p := range m.sortedPlugins() {
			changed = m.releasePods(ctx, p) || changed
		}
		if changed && !waiting {
			waiting = true
			due.Reset(pause)
		}
	}
}

// releasePods asks one plugin to release the pods whose releases are pending. It stops at the first failure. It reports
// whether the plugin released a pod.
func (m *Manager) releasePods(ctx context.Context, p *plugin) (any bool) {
	for ctx.Err() == nil {
		r, done := m.nextRemoval(p.resource)
		if done == nil {
			return any
		}
		err := p.call(ctx, "RemovePod", &api.RemovePodRequest{PodUid: r.uid}, &api.RemovePodResponse{}, nil)
		m.mu.Lock()
		delete(m.removalsInProgress, r)
		if err == nil {
			any = true
		} else if m.removals[r.resource] != nil {
			m.removals[r.resource][r.uid] = true
		}
		m.mu.Unlock()
		close(done)
		if err != nil {
			m.opts.Log.Debug("a resource plugin has not released a pod; the agent asks it again", logkey.Key, p.resource, logkey.Pod, r.uid, logkey.Err, err)
			return any
		}
	}
	return any
}

// nextRemoval returns a pending release of a plugin, and marks the release as in progress. After the release, the
// caller must close done. done is nil if there is no pending release.
func (m *Manager) nextRemoval(resource string) (r removal, done chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, uid := range sortedKeys(m.removals[resource]) {
		r, done = removal{resource, uid}, make(chan struct{})
		delete(m.removals[resource], uid)
		m.removalsInProgress[r] = done
		return r, done
	}
	return r, nil
}
