package qrm

import (
	"context"
	"maps"
	"math"
	"time"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// removal identifies the release of one pod's allocations by one plugin.
type removal struct{ resource, uid string }

const (
	// retryRemovals is the interval at which the manager tries again the releases that a plugin has not confirmed.
	retryRemovals = 2 * time.Second
	// saveDelay is the time for which the manager collects changes before it saves the state of all pods.
	saveDelay = 100 * time.Millisecond
	// saveShare makes the delay longer if saves are slow: it is saveShare times the duration of the last save, and
	// at most maxSaveDelay. If the agent crashes before a save, plugins and containers' records still have the
	// allocations.
	saveShare, maxSaveDelay = 30, 3 * time.Second
	// maxRemovals limits the pending releases of one plugin. Katalyst's plugins also release pods that no longer
	// exist by themselves.
	maxRemovals = 4096
)

// Remove queues the release of a pod's allocations. If a plugin does not answer, the manager tries again later.
// For an unknown pod, Remove asks all plugins, because an earlier agent may have made allocations.
func (m *Manager) Remove(uid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(uid)
}

// remove is Remove for callers that hold mu.
func (m *Manager) remove(uid string) {
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
		m.o.Log.Warn("a resource plugin does not release pods, and too many releases are pending: the agent drops one", logkey.Key, resource)
		return
	}
	m.removals[resource][uid] = true
	m.wake()
}

// ReleaseEnded gives the manager the UIDs of the runtime's pods. It releases the allocations for all other pods.
func (m *Manager) ReleaseEnded(live map[string]bool) {
	for _, uid := range m.podUIDs() {
		if !live[uid] {
			m.Remove(uid)
		}
	}
	m.mu.Lock()
	m.synced = true
	m.mu.Unlock()
}

// keepPod cancels the pending release of a pod that gets a new sandbox. If the release is in progress, it waits
// for the end of the release.
func (m *Manager) keepPod(ctx context.Context, resource, uid string) error {
	for {
		m.mu.Lock()
		delete(m.removals[resource], uid)
		under := m.removing[removal{resource, uid}]
		m.mu.Unlock()
		if under == nil {
			return nil
		}
		select {
		case <-under:
		case <-ctx.Done():
			return &callError{result: TimedOut, text: "the plugin did not release the pod's earlier sandbox in time"}
		}
	}
}

// work saves the state after changes, and releases pods, until ctx ends.
func (m *Manager) work(ctx context.Context) {
	tick := time.NewTicker(retryRemovals)
	defer tick.Stop()
	due := time.NewTimer(math.MaxInt64) // of the next save
	defer due.Stop()
	waiting, pause := false, saveDelay
	for {
		changed := false
		select {
		case <-ctx.Done():
			return
		case <-m.changed:
			changed = true
		case <-tick.C:
		case <-due.C:
			waiting = false
			begin := m.o.Now()
			m.save()
			pause = min(max(saveDelay, saveShare*m.o.Now().Sub(begin)), maxSaveDelay)
			continue
		}
		for _, p := range m.sortedPlugins() {
			changed = m.release(ctx, p) || changed
		}
		if changed && !waiting {
			waiting = true
			due.Reset(pause)
		}
	}
}

// release asks one plugin to release its pending pods. It stops at the first failure. It reports whether the
// plugin released a pod.
func (m *Manager) release(ctx context.Context, p *plugin) (any bool) {
	for ctx.Err() == nil {
		r, done := m.nextRemoval(p.resource)
		if done == nil {
			return any
		}
		err := p.call(ctx, "RemovePod", &api.RemovePodRequest{PodUid: r.uid}, &api.RemovePodResponse{}, nil)
		m.mu.Lock()
		delete(m.removing, r)
		if err == nil {
			any = true
		} else if m.removals[r.resource] != nil {
			m.removals[r.resource][r.uid] = true
		}
		m.mu.Unlock()
		close(done)
		if err != nil {
			m.o.Log.Debug("a resource plugin has not released a pod; the agent asks it again", logkey.Key, p.resource, logkey.Pod, r.uid, logkey.Err, err)
			return any
		}
	}
	return any
}

// nextRemoval returns a pending release of a plugin, and marks it as in progress. The caller must close done. done
// is nil if there is no pending release.
func (m *Manager) nextRemoval(resource string) (r removal, done chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, uid := range sortedKeys(m.removals[resource]) {
		r, done = removal{resource, uid}, make(chan struct{})
		delete(m.removals[resource], uid)
		m.removing[r] = done
		return r, done
	}
	return r, nil
}
