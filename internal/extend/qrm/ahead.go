package qrm

import (
	"google.golang.org/protobuf/proto"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// MarkBeforeCreation marks a question that the agent asks before the runtime reports the container. The plugins'
// answers are stored, and the agent uses them when the container is created.
func (q *Question) MarkBeforeCreation() { q.beforeCreation = true }

// answerBeforeCreation returns the answer that the plugin gave to the same request before the container was created.
// The bool is false if there is no such answer, or if a creation of the container has already used the answer.
func (m *Manager) answerBeforeCreation(req *api.ResourceRequest) (storedAllocation, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[req.GetPodUid()]
	if p == nil {
		return storedAllocation{}, false
	}
	a := p.answers[req.GetContainerName()][req.GetResourceName()]
	return a, a.beforeCreation && a.answer != nil && sameRequest(a.request, req)
}

// sameRequest reports whether two requests are equal except for their hints.
func sameRequest(a, b *api.ResourceRequest) bool {
	if a.GetHint() == nil && b.GetHint() == nil {
		return proto.Equal(a, b)
	}
	at, other := proto.CloneOf(a), proto.CloneOf(b)
	at.Hint, other.Hint = nil, nil
	return proto.Equal(at, other)
}

// hints returns a list with the hint that was in the request for the allocation; nil if the request had no hint.
func (a storedAllocation) hints() []lifecycle.ResourceHints {
	if a.request.GetHint() == nil {
		return nil
	}
	return []lifecycle.ResourceHints{{Resource: a.request.GetResourceName(), Hints: convertHints([]*api.TopologyHint{a.request.GetHint()})}}
}

// noteCreated stores that a container of the pod was created, and marks the answer from before the creation as used. If
// the container is created a second time, the agent asks the plugin again.
func (m *Manager) noteCreated(req *api.ResourceRequest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[req.GetPodUid()]
	if p == nil {
		return
	}
	p.noContainerYet = false
	a := p.answers[req.GetContainerName()][req.GetResourceName()]
	if a.answer != nil {
		a.beforeCreation = false
		p.answers[req.GetContainerName()][req.GetResourceName()] = a
	}
	m.wake()
}

// ReleaseIfNotCreated releases the resources that plugins allocated for a pod before the pod's creation. It does
// nothing if a container of the pod was created.
func (m *Manager) ReleaseIfNotCreated(uid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pods[uid]; p != nil && p.noContainerYet {
		m.removeLocked(uid)
	}
}
