package api

import "cmp"

// Adoption is what the agent would decide if it took over from another agent now.
type Adoption struct {
	// From is the name of the other agent.
	From string `json:"from"`
	// ContainersRead is the number of containers that were found in the other agent's files, or in the labels and
	// annotations of pods.
	ContainersRead int `json:"read"`
	// Containers are the running containers, sorted by name. The field is missing if no agent of Trimtab runs.
	Containers []Adopted `json:"containers,omitempty"`
	// Moves counts the containers that would get other CPUs or memory nodes.
	Moves int `json:"moves"`
	// Applied means that the agent takes over when it starts the next time.
	Applied bool `json:"applied,omitempty"`
}

// Adopted is a running container, and what it would have after an adoption.
type Adopted struct {
	Pod       string `json:"pod"`
	Container string `json:"container"`
	// Class is the other agent's name for the container's class, pool or balloon.
	Class string `json:"class,omitempty"`
	// CPUsNow are the CPUs in the container's cpuset now. CPUsAfter are the CPUs after the adoption. Both are kernel
	// lists.
	CPUsNow   string `json:"has"`
	CPUsAfter string `json:"gets"`
	// MemsNow are the memory nodes that the other agent assigned. MemsAfter are the memory nodes after the adoption. A
	// field is missing if the container may use all memory nodes.
	MemsNow   string `json:"hasMems,omitempty"`
	MemsAfter string `json:"getsMems,omitempty"`
	// Group says which CPUs the container would use after the adoption: "exclusive" for CPUs of its own, or the name of
	// a pool.
	Group string `json:"group"`
	// Unchanged means that neither CPUs nor memory nodes would change.
	Unchanged bool `json:"keeps"`
	// Why says why the CPUs or memory nodes would change, or what else would change; missing if there is nothing to
	// explain.
	Why string `json:"why,omitempty"`
	// Source names the place where the container's CPUs, memory nodes and class were found: a file of the other agent
	// with the position in that file, or a label or annotation of the pod. Source is missing if no such place has the
	// container.
	Source string `json:"where,omitempty"`
}

// Compare orders containers by pod and name.
func (a Adopted) Compare(o Adopted) int {
	return cmp.Or(cmp.Compare(a.Pod, o.Pod), cmp.Compare(a.Container, o.Container))
}
