package recording

import (
	"slices"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Decision is the result of an event.
type Decision struct {
	// Rejected is the reason why the agent refused the container or pod; "" if the agent accepted it.
	Rejected string `json:"rejected,omitempty"`
	// Containers and Pods are the containers and pods about which the agent decided, sorted by id.
	Containers []OwnerDecision `json:"containers,omitempty"`
	Pods       []OwnerDecision `json:"pods,omitempty"`
	// Pools are the pools whose CPUs changed.
	Pools []PoolChange `json:"pools,omitempty"`
	// Gone are the sorted ids of the containers and pods that ended.
	Gone []string `json:"gone,omitempty"`
}

// OwnerDecision is the decision about one container or pod.
type OwnerDecision struct {
	ID   string `json:"id"`
	Name string `json:"name"` // namespace/pod or namespace/pod/container
	// Pool is the container's pool, or "exclusive". CPUs are the CPUs that the container may use. A pod has neither.
	Pool     string              `json:"pool,omitempty"`
	CPUs     string              `json:"cpus,omitempty"`
	Values   []lifecycle.Value   `json:"values,omitempty"`
	Problems []lifecycle.Problem `json:"problems,omitempty"`
}

// PoolChange is a pool whose CPUs changed. If containers of a pool have different CPUs, each set of CPUs that changed
// has a PoolChange.
type PoolChange struct {
	Pool       string `json:"pool"`
	Before     string `json:"before"`     // the CPUs before the event
	After      string `json:"after"`      // the CPUs after the event
	Containers int    `json:"containers"` // the number of containers with these CPUs
}

// DecisionOf returns the decision about an event. The parameter p is the engine's plan for the event. If p does not
// refuse the container or pod, the caller must have committed p to the state s before.
func DecisionOf(s *engine.State, p *engine.Plan) Decision {
	if p.Reject != "" {
		return Decision{Rejected: p.Reject}
	}
	d := Decision{Gone: slices.Sorted(slices.Values(append(slices.Clone(p.EndedContainers), p.EndedPods...)))}
	for _, id := range slices.Compact(slices.Clone(p.Changed)) {
		if one, ok := containerDecision(s, id); ok {
			d.Containers = append(d.Containers, one)
		}
	}
	for _, id := range slices.Compact(slices.Clone(p.ChangedPods)) {
		if one, ok := podDecision(s, id); ok {
			d.Pods = append(d.Pods, one)
		}
	}
	for _, g := range p.GroupChanges {
		d.Pools = append(d.Pools, PoolChange{g.Group.Pool.String(), s.Machine.Format(g.Before), s.Machine.Format(g.After), len(g.Members)})
	}
	return d
}

// containerDecision returns the current decision about a container; false if the state does not have the container.
func containerDecision(s *engine.State, id string) (OwnerDecision, bool) {
	c := s.Container(id)
	if c == nil {
		return OwnerDecision{}, false
	}
	return OwnerDecision{
		ID: id, Name: s.FullName(c), Pool: c.Assignment.Pool.String(), CPUs: s.Machine.Format(s.CPUs(c)), Values: s.Values(c), Problems: c.DecisionProblems(),
	}, true
}

// podDecision returns the current decision about a pod; false if the state does not have the pod.
func podDecision(s *engine.State, id string) (OwnerDecision, bool) {
	p := s.Pod(id)
	if p == nil {
		return OwnerDecision{}, false
	}
	return OwnerDecision{ID: id, Name: p.FullName(), Values: p.Values, Problems: p.Problems()}, true
}
