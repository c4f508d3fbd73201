package api

import "time"

// Usage is how much CPU time the running containers of a node have used, at one moment.
type Usage struct {
	At         time.Time      `json:"at"`
	Containers []ContainerUse `json:"containers"`
}

// ContainerUse is how much CPU time a container has used since its start, and how it has waited for CPUs.
type ContainerUse struct {
	ID        string `json:"id"`
	Pod       string `json:"pod"` // namespace/name
	Container string `json:"container"`
	// Pool is the name of its pool as in the status; "" for an owner of CPUs.
	Pool string        `json:"pool,omitempty"`
	Used time.Duration `json:"usedNanoseconds"`
	// Periods of its CPU limit in which it ran, and those of them in which the limit stopped it.
	Periods   int64 `json:"periods,omitempty"`
	Throttled int64 `json:"throttled,omitempty"`
	// Pressure is the share of the last ten seconds in which a task of it waited for a CPU, in percent; -1 if the
	// kernel does not report it.
	Pressure float64 `json:"pressure"`
}
