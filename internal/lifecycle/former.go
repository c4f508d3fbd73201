package lifecycle

// FormerContainer has the CPUs and memory nodes that another agent gave to a container before this agent ran.
// They come from that agent's files or annotations. This agent uses them only if they agree with the cgroup files.
type FormerContainer struct {
	// ID is the container's id. If it is "", PodUID and Container identify the container; without Container
	// the entry applies to the whole pod. If all three are "", the entry applies to all containers
	// that no other entry matches.
	ID        string `json:"id,omitempty"`
	PodUID    string `json:"podUID,omitempty"`
	Container string `json:"container,omitempty"`
	// CPUs and Mems are kernel lists of CPUs and memory nodes; "" if that agent set no limit.
	CPUs string `json:"cpus,omitempty"`
	Mems string `json:"mems,omitempty"`
	// Exclusive reports whether that agent kept all other containers off these CPUs.
	Exclusive bool `json:"exclusive,omitempty"`
	// Class is the name that agent has for the container's class, pool or balloon.
	Class string `json:"class,omitempty"`
	// Where names the source of the entry: a file and the position in that file, or a label or annotation.
	Where string `json:"where"`
}

// FormerAgent is another agent that managed the node before, with the CPUs and memory nodes that it gave to
// containers.
type FormerAgent struct {
	System     string            `json:"system"`
	Containers []FormerContainer `json:"gave,omitempty"`
}
