// Package view has the report that the probe, a test program in a container, prints at its start. The test harness
// reads the report.
package view

// View is the report of the probe about its environment. The probe makes it before anything else.
type View struct {
	// Started is when the probe's main began, in ns since the epoch. The process started about a millisecond earlier,
	// because the Go runtime starts before main.
	Started int64             `json:"started"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env"`
	// NumCPU is runtime.NumCPU. The Go runtime counts these CPUs before main, and so before the probe reads Affinity.
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
