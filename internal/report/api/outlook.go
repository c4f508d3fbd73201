package api

import (
	"cmp"
	"time"
)

// Plan is the result of a plan: the effect of new pods, or of another configuration.
type Plan struct {
	// Containers have the values that the pods' containers would get.
	Containers []Container `json:"containers,omitempty"`
	Rejected   []Rejected  `json:"rejected,omitempty"`
	// Moves are running containers that would get other CPUs.
	Moves []Move `json:"moves,omitempty"`
	// Changes are other decisions about running containers and their pods that would change.
	Changes []Change `json:"changes,omitempty"`
	// CreateAgain are running containers, as NAMESPACE/POD/CONTAINER, that ask for CPUs of their own and would have none:
	// only their next creation can give them some.
	CreateAgain []string `json:"createAgain,omitempty"`
	// Hints say what would serve the pods better, a sentence each.
	Hints []string `json:"hints,omitempty"`
	// PassedOver are objects of the manifests that have no pods, such as "2 Service".
	PassedOver []string `json:"passedOver,omitempty"`
	// ReleasedAt is when the agent restored all values and stopped deciding; missing if it did not. Until it is
	// started again, new pods get what the runtime and the kubelet give them, and a configuration changes nothing.
	ReleasedAt time.Time `json:"releasedAt,omitzero"`
	// CPUs are the node's CPUs after the change.
	CPUs NodeCPUs `json:"cpus"`
}

// Rejected is a container that a policy would refuse, or the whole pod if it has no name.
type Rejected struct {
	Pod       string `json:"pod"`
	Container string `json:"container,omitempty"`
	Reason    string `json:"reason"`
}

// Move is a running container that would get other CPUs, as kernel lists.
type Move struct {
	Pod       string `json:"pod"`
	Container string `json:"container"`
	Before    string `json:"before"`
	After     string `json:"after"`
}

// Compare orders moves by name.
func (m Move) Compare(o Move) int {
	return cmp.Or(cmp.Compare(m.Pod, o.Pod), cmp.Compare(m.Container, o.Container), cmp.Compare(m.Before, o.Before))
}

// Change is a decision about a running container, or about its pod if it has no name, that would change.
type Change struct {
	Pod       string `json:"pod"`
	Container string `json:"container,omitempty"`
	Setting   string `json:"setting"`          // class, pool, or a field with its key
	Before    string `json:"before,omitempty"` // missing if nothing is decided now
	After     string `json:"after,omitempty"`  // missing if nothing would be decided
}

// Compare orders changes by setting and values, then by name, so that like changes are neighbours.
func (c Change) Compare(o Change) int {
	return cmp.Or(cmp.Compare(c.Setting, o.Setting), cmp.Compare(c.Before, o.Before), cmp.Compare(c.After, o.After),
		cmp.Compare(c.Pod, o.Pod), cmp.Compare(c.Container, o.Container))
}

// Released is the result of a release, which restores the values from before Trimtab.
type Released struct {
	// Given counts restored values.
	Given int `json:"given"`
	// Left are values that the release did not change, because another program has changed them since.
	Left []Kept `json:"left,omitempty"`
	// Failed are values that the agent could not restore: the kernel refused, or the agent does not know the
	// earlier value.
	Failed []Kept `json:"failed,omitempty"`
	// Stale are values that are still in the runtime's stored copies: the kubelet's next update of the container
	// would write them again. Kernel is the value in the copy.
	Stale []Kept `json:"stale,omitempty"`
	// Waiting counts containers whose copy in the runtime was not yet changed when the time for that ended.
	Waiting int `json:"waiting,omitempty"`
	// Again reports that the agent released before. Given then counts values that have their original value already.
	Again bool `json:"again,omitempty"`
	// Nothing reports that no agent has run on the node: there is neither its state nor its key.
	Nothing bool `json:"nothing,omitempty"`
	// Cluster says what is left at the API server and why; "" if nothing is left.
	Cluster string `json:"cluster,omitempty"`
}

// Unrestored counts values that are not as they were before, without those that other programs changed.
func (r *Released) Unrestored() int { return len(r.Failed) + max(len(r.Stale), r.Waiting) }

// Kept is a value that the agent did not restore, and why.
type Kept struct {
	Owner   string `json:"owner,omitempty"` // container or sandbox id
	Cgroup  string `json:"cgroup"`
	Setting string `json:"setting"`
	Kernel  string `json:"kernel,omitempty"` // what is there
	Why     string `json:"why"`
}
