package facts

import (
	"slices"
	"sync"
)

// missedPods collects the unknown pods for which Inform was called while the agent decides an event. The event may
// report these pods, and its facts may have been read before Inform was called. So Inform has to be called again after
// the decision.
type missedPods struct {
	mu      sync.Mutex
	collect bool     // from CollectMissedPods to TakeMissedPods
	uids    []string // the unknown pods so far
}

// add notes an unknown pod. The caller holds the state.
func (m *missedPods) add(uid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.collect && !slices.Contains(m.uids, uid) {
		m.uids = append(m.uids, uid)
	}
}

// CollectMissedPods begins to collect the unknown pods that Inform skips. The caller calls it before it reads the
// facts of an event.
func (g *Gatherer) CollectMissedPods() {
	g.missedPods.mu.Lock()
	defer g.missedPods.mu.Unlock()
	g.missedPods.collect, g.missedPods.uids = true, nil
}

// TakeMissedPods ends the collection and returns the UIDs of the pods that Inform skipped since CollectMissedPods. The
// caller calls it after the decision is in the state.
func (g *Gatherer) TakeMissedPods() []string {
	g.missedPods.mu.Lock()
	defer g.missedPods.mu.Unlock()
	uids := g.missedPods.uids
	g.missedPods.collect, g.missedPods.uids = false, nil
	return uids
}
