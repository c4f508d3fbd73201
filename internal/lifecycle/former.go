package lifecycle

// FormerContainer has the CPUs and memory nodes that another agent gave to a container before this agent ran.
// The data comes from files or annotations of that agent. This agent uses the data only if the cgroup files have
// the same CPUs and memory nodes.
type FormerContainer struct {
	// ID is the container's id. If ID is "", PodUID and Container identify the container. If Container is also "",
	// the entry applies to all containers of the pod. If all three are "", the entry applies to all containers
	// that no other entry matches.
	ID        string `json:"id,omitempty"`
	PodUID    string `json:"podUID,omitempty"`
	Container string `json:"container,omitempty"`
	// CPUs and Mems are kernel lists of CPUs and memory nodes; "" if that agent set no limit.
	CPUs string `json:"cpus,omitempty"`
	Mems string `json:"mems,omitempty"`
	// Exclusive means that no other container could use these CPUs.
	Exclusive bool `json:"exclusive,omitempty"`
	// Class is the name of the container's class, pool or balloon in that agent.
	Class string `json:"class,omitempty"`
	// Where names the source of the entry: a file and the position in that file, or a label or annotation.
	Where string `json:"where"`
}

// FormerAgent is another agent that managed the node before, with the CPUs and memory nodes that it gave to
// containers.
type FormerAgent struct {
	System     string            `json:"system"` // the name of that agent, such as "kubelet"
	Containers []FormerContainer `json:"gave,omitempty"`
}
