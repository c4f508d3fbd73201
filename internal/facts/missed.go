package facts

import (
	"slices"
	"sync"
)

// missed collects the unknown pods for which Inform was called while an event is decided. The event may report these
// pods, and the facts for its decision may have been read before the fact that Inform reports was known. So Inform has
// to be called again after the decision.
type missed struct {
	mu      sync.Mutex
	collect bool
	uids    []string
}

// add notes an unknown pod. The caller holds the state.
func (m *missed) add(uid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.collect && !slices.Contains(m.uids, uid) {
		m.uids = append(m.uids, uid)
	}
}

// CollectMissed begins to collect the unknown pods that Inform skips. The caller calls it before it reads the facts of
// an event.
func (g *Gatherer) CollectMissed() {
	g.missed.mu.Lock()
	defer g.missed.mu.Unlock()
	g.missed.collect, g.missed.uids = true, nil
}

// TakeMissed ends CollectMissed and returns the UIDs of the pods that Inform skipped since then. The caller calls it
// after the decision is in the state.
func (g *Gatherer) TakeMissed() []string {
	g.missed.mu.Lock()
	defer g.missed.mu.Unlock()
	uids := g.missed.uids
	g.missed.collect, g.missed.uids = false, nil
	return uids
}
