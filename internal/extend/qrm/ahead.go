package qrm

import (
	"google.golang.org/protobuf/proto"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Ahead says that no runtime has reported the container yet. The answers count for its creation.
func (q *Question) Ahead() { q.ahead = true }

// answeredAhead returns a plugin's answer to the same request, if it was given before the container
// was created and no creation has used it.
func (m *Manager) answeredAhead(req *api.ResourceRequest) (stored, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[req.GetPodUid()]
	if p == nil {
		return stored{}, false
	}
	a := p.answers[req.GetContainerName()][req.GetResourceName()]
	return a, a.ahead && a.answer != nil && sameRequest(a.request, req)
}

// sameRequest reports whether two requests ask for the same, wherever it is allocated.
func sameRequest(a, b *api.ResourceRequest) bool {
	if a.GetHint() == nil && b.GetHint() == nil {
		return proto.Equal(a, b)
	}
	at, other := proto.CloneOf(a), proto.CloneOf(b)
	at.Hint, other.Hint = nil, nil
	return proto.Equal(at, other)
}

// hints returns where the resource was allocated; nil if the nodes did not matter.
func (a stored) hints() []lifecycle.ResourceHints {
	if a.request.GetHint() == nil {
		return nil
	}
	return []lifecycle.ResourceHints{{Resource: a.request.GetResourceName(), Hints: converted([]*api.TopologyHint{a.request.GetHint()})}}
}

// arrived notes that a container was created with an answer that was given ahead. A second creation
// asks the plugin again.
func (m *Manager) arrived(req *api.ResourceRequest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[req.GetPodUid()]
	if p == nil {
		return
	}
	p.ahead = false
	a := p.answers[req.GetContainerName()][req.GetResourceName()]
	if a.answer != nil {
		a.ahead = false
		p.answers[req.GetContainerName()][req.GetResourceName()] = a
	}
	m.wake()
}

// RemoveExpected releases what plugins allocated ahead for a pod, unless a container of it was
// created.
func (m *Manager) RemoveExpected(uid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pods[uid]; p != nil && p.ahead {
		m.remove(uid)
	}
}
