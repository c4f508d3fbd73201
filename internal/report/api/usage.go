package api

import "time"

// Usage is how much CPU time each running container of a node has used up to the moment At.
type Usage struct {
	At         time.Time      `json:"at"`
	Containers []ContainerUse `json:"containers"`
}

// ContainerUse is how much CPU time a container has used since its start, how often it was throttled, and how much it
// waits for CPUs.
type ContainerUse struct {
	ID        string `json:"id"`
	Pod       string `json:"pod"` // namespace/name
	Container string `json:"container"`
	// Pool is the name of the container's pool, as in Node.CPUs.Pools; "" if the container owns CPUs.
	Pool string        `json:"pool,omitempty"`
	Used time.Duration `json:"usedNanoseconds"`
	// Periods is the number of CFS periods in which the container ran. Throttled is the number of these periods in which
	// its CPU limit throttled it.
	Periods   int64 `json:"periods,omitempty"`
	Throttled int64 `json:"throttled,omitempty"`
	// Pressure is the share of the last ten seconds in which one of its tasks waited for a CPU, in percent. It is -1 if
	// the kernel does not report it.
	Pressure float64 `json:"pressure"`
}
