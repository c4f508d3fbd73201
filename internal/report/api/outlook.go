package api

import "cmp"

// Outlook is what would be: pods that are not there yet, or another configuration.
type Outlook struct {
	// Containers are what the pods' containers would get.
	Containers []Container `json:"containers,omitempty"`
	Rejected   []Rejected  `json:"rejected,omitempty"`
	// Moves are running containers that would get other CPUs.
	Moves []Move `json:"moves,omitempty"`
	// PassedOver are objects of the manifests that have no pods, as "2 Service".
	PassedOver []string `json:"passedOver,omitempty"`
	// CPUs are the node's then.
	CPUs NodeCPUs `json:"cpus"`
}

// Rejected is a container that a policy would refuse; without a name the whole pod.
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

// Released is what became of everything that was given back.
type Released struct {
	// Given counts values that are as they were before Trimtab.
	Given int `json:"given"`
	// Left are values that stay, as another program changed them since.
	Left []Kept `json:"left,omitempty"`
	// Failed are values that could not be restored: the kernel refused, or the agent
	// does not know what was there before.
	Failed []Kept `json:"failed,omitempty"`
	// Stale are values that the runtime's stored copies have still: the next update
	// of the container by the kubelet would bring them back. Kernel is what is in
	// the copy.
	Stale []Kept `json:"stale,omitempty"`
	// Waiting counts containers whose copy in the runtime was still to be changed
	// when the time for it was over.
	Waiting int `json:"waiting,omitempty"`
	// Cluster says why something is left at the API server; "" for nothing left.
	Cluster string `json:"cluster,omitempty"`
}

// Unrestored counts what is not as it was, but for what others changed.
func (r *Released) Unrestored() int { return len(r.Failed) + max(len(r.Stale), r.Waiting) }

// Kept is a value that was not given back, and why.
type Kept struct {
	Owner   string `json:"owner,omitempty"` // container or sandbox id
	Cgroup  string `json:"cgroup"`
	Setting string `json:"setting"`
	Kernel  string `json:"kernel,omitempty"` // what is there
	Why     string `json:"why"`
}
