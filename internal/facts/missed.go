package facts

import (
	"slices"
	"sync"
)

// missedPods collects pods that Inform could not decide again, because the state does not have them. It collects while
// the agent decides an event: the event possibly adds these pods to the state, but with facts that were read before
// Inform was called. So Inform has to be called again for these pods after the decision.
type missedPods struct {
	mu      sync.Mutex
	collect bool     // true from the call of CollectMissedPods to the call of TakeMissedPods
	uids    []string // the unknown pods so far
}

// add notes the UID of an unknown pod. The caller has locked the state.
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
