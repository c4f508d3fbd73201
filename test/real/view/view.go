// Package view has the report that the probe prints at its start and the harness reads.
package view

// View is the probe's report, made before it does anything else.
type View struct {
	// Started is the start of the probe's main, in ns since the epoch. The start of the Go runtime takes about a
	// millisecond before.
	Started int64             `json:"started"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env"`
	// NumCPU is the Go runtime's count before main, so it is older than Affinity.
	NumCPU int `json:"numCPU"`
	// Affinity is the result of sched_getaffinity. CPUsAllowed and MemsAllowed are lines of /proc/self/status. All
	// three have the kernel's list format, such as 0-3,8.
	Affinity    string `json:"affinity"`
	CPUsAllowed string `json:"cpusAllowed"`
	MemsAllowed string `json:"memsAllowed"`
	// Cgroup has the trimmed text of each readable file of the container's cgroup, by file name.
	Cgroup map[string]string `json:"cgroup"`
	// CgroupLines is /proc/self/cgroup.
	CgroupLines []string `json:"cgroupLines"`
}
