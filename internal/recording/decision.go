package recording

import (
	"slices"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Decision is the result of an event.
type Decision struct {
	// Rejected is why the agent refused the container or pod; "" if it did not.
	Rejected string `json:"rejected,omitempty"`
	// Containers and Pods are those about which the event made a decision, sorted by id.
	Containers []Decided `json:"containers,omitempty"`
	Pods       []Decided `json:"pods,omitempty"`
	// Pools are the pools whose CPUs changed, with all their containers.
	Pools []PoolChange `json:"pools,omitempty"`
	// Gone are ids of containers and pods that ended.
	Gone []string `json:"gone,omitempty"`
}

// Decided is a container or a pod, with the values that are decided for it now.
type Decided struct {
	ID   string `json:"id"`
	Name string `json:"name"` // namespace/pod or namespace/pod/container
	// Pool is the container's pool, or "exclusive". CPUs are the CPUs that the container may use.
	Pool     string              `json:"pool,omitempty"`
	CPUs     string              `json:"cpus,omitempty"`
	Values   []lifecycle.Value   `json:"values,omitempty"`
	Problems []lifecycle.Problem `json:"problems,omitempty"`
}

// PoolChange is a pool whose CPUs changed.
type PoolChange struct {
	Pool       string `json:"pool"`
	Before     string `json:"before"`
	After      string `json:"after"`
	Containers int    `json:"containers"`
}

// DecisionOf returns the result of an event, after the conductor has committed its plan.
func DecisionOf(s *engine.State, p *engine.Plan) Decision {
	if p.Reject != "" {
		return Decision{Rejected: p.Reject}
	}
	d := Decision{Gone: slices.Sorted(slices.Values(append(slices.Clone(p.Gone), p.GonePods...)))}
	for _, id := range slices.Compact(slices.Clone(p.Changed)) {
		if one, ok := containerOf(s, id); ok {
			d.Containers = append(d.Containers, one)
		}
	}
	for _, id := range slices.Compact(slices.Clone(p.ChangedPods)) {
		if one, ok := podOf(s, id); ok {
			d.Pods = append(d.Pods, one)
		}
	}
	for _, g := range p.GroupChanges {
		d.Pools = append(d.Pools, PoolChange{g.Group.Pool.String(), s.Machine.Format(g.Before), s.Machine.Format(g.After), len(g.Members)})
	}
	return d
}

func containerOf(s *engine.State, id string) (Decided, bool) {
	c := s.Container(id)
	if c == nil {
		return Decided{}, false
	}
	return Decided{
		ID: id, Name: s.FullName(c), Pool: c.Assignment.Pool.String(), CPUs: s.Machine.Format(s.CPUs(c)), Values: s.Values(c), Problems: c.DecisionProblems(),
	}, true
}

func podOf(s *engine.State, id string) (Decided, bool) {
	p := s.Pod(id)
	if p == nil {
		return Decided{}, false
	}
	return Decided{ID: id, Name: p.FullName(), Values: p.Values, Problems: p.Problems()}, true
}
