package api

import (
	"cmp"
	"time"
)

// Plan is the answer to `trimtab plan`: the effect of new pods, or of another configuration.
type Plan struct {
	// Containers have the values that the pods' containers would get.
	Containers []Container `json:"containers,omitempty"`
	Rejected   []Rejected  `json:"rejected,omitempty"`
	// Moves has the running containers that would get other CPUs.
	Moves []Move `json:"moves,omitempty"`
	// Changes has the decisions about running containers and pods that would change, except decisions about their CPUs.
	Changes []Change `json:"changes,omitempty"`
	// NeedRecreation has running containers, as NAMESPACE/POD/CONTAINER, that request CPUs of their own and would own
	// none. They can own CPUs only after they are created again, and only if enough CPUs are free then.
	NeedRecreation []string `json:"createAgain,omitempty"`
	// Hints are sentences that say which changes would give the pods what they request.
	Hints []string `json:"hints,omitempty"`
	// IgnoredObjects counts the objects in the manifests that create no pods, by kind, such as "2 Service".
	IgnoredObjects []string `json:"passedOver,omitempty"`
	// ReleasedAt is when 'trimtab release' made the agent restore all values; missing without a release. After a
	// release, the agent decides nothing until its restart, and a new configuration has no effect.
	ReleasedAt time.Time `json:"releasedAt,omitzero"`
	// CPUs are the node's CPUs after the change.
	CPUs NodeCPUs `json:"cpus"`
}

// Rejected is a container that a policy would refuse, or a whole pod if Container is "".
type Rejected struct {
	Pod       string `json:"pod"`
	Container string `json:"container,omitempty"`
	Reason    string `json:"reason"`
}

// Move is a running container that would get other CPUs. Before and After are kernel lists.
type Move struct {
	Pod       string `json:"pod"`
	Container string `json:"container"`
	Before    string `json:"before"`
	After     string `json:"after"`
}

// Compare orders moves by pod and container.
func (m Move) Compare(o Move) int {
	return cmp.Or(cmp.Compare(m.Pod, o.Pod), cmp.Compare(m.Container, o.Container), cmp.Compare(m.Before, o.Before))
}

// Change says how a decision about a running container would change. If Container is "", the decision is about a whole
// pod.
type Change struct {
	Pod       string `json:"pod"`
	Container string `json:"container,omitempty"`
	Setting   string `json:"setting"`          // class, pool, or a field with its key
	Before    string `json:"before,omitempty"` // missing if nothing is decided now
	After     string `json:"after,omitempty"`  // missing if nothing would be decided
}

// Compare orders changes by setting and values, and then by name. Equal changes of several containers are neighbours.
func (c Change) Compare(o Change) int {
	return cmp.Or(cmp.Compare(c.Setting, o.Setting), cmp.Compare(c.Before, o.Before), cmp.Compare(c.After, o.After),
		cmp.Compare(c.Pod, o.Pod), cmp.Compare(c.Container, o.Container))
}

// Released is the result of 'trimtab release', which restores the values from before Trimtab.
type Released struct {
	// Restored counts the restored values.
	Restored int `json:"given"`
	// LeftToOthers are values that the agent did not restore, because another program has changed them after the agent.
	LeftToOthers []NotRestored `json:"left,omitempty"`
	// Failed are values that the agent could not restore: the kernel refused the write, or the agent does not know the
	// original value.
	Failed []NotRestored `json:"failed,omitempty"`
	// Stale are values that are still in the runtime's stored copy of a container. The kubelet's next update of the
	// container would write them again. The field Kernel of these values has the value in the copy.
	Stale []NotRestored `json:"stale,omitempty"`
	// PendingCopies counts containers whose stored copy the runtime had not updated before the timeout.
	PendingCopies int `json:"waiting,omitempty"`
	// AlreadyReleased means that an earlier release had already restored the values. Restored then counts the values
	// that already had their original value.
	AlreadyReleased bool `json:"again,omitempty"`
	// NeverRan means that no agent has run on the node: there is neither a state directory (paths.state) nor a file
	// with the agent's key (paths.key).
	NeverRan bool `json:"nothing,omitempty"`
	// Cluster says which objects of the agent were not removed from the API server, and why; "" if all were removed.
	Cluster string `json:"cluster,omitempty"`
}

// Unrestored counts values that do not have their original value. It does not count values in LeftToOthers.
func (r *Released) Unrestored() int { return len(r.Failed) + max(len(r.Stale), r.PendingCopies) }

// NotRestored is a value that the agent did not restore, and why.
type NotRestored struct {
	Owner   string `json:"owner,omitempty"` // container or sandbox id
	Cgroup  string `json:"cgroup"`
	Setting string `json:"setting"`
	Kernel  string `json:"kernel,omitempty"` // the present value
	Why     string `json:"why"`              // why the agent did not restore the value
}
