// Package view is what a container saw of itself when it started: the words the probe prints and the harness reads.
package view

// View is taken by the probe before it does anything else.
type View struct {
	// Started is when the probe's main began, in ns since the epoch; a Go program's own start takes about a millisecond
	// before that.
	Started int64             `json:"started"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env"`
	// NumCPU is what the Go runtime counted before main, so it is older than Affinity.
	NumCPU int `json:"numCPU"`
	// Affinity is the answer of sched_getaffinity, the other two are the lines of /proc/self/status; all in list form.
	Affinity    string `json:"affinity"`
	CPUsAllowed string `json:"cpusAllowed"`
	MemsAllowed string `json:"memsAllowed"`
	// Cgroup holds the trimmed content of each file of the container's own cgroup that could be read, by file name.
	Cgroup map[string]string `json:"cgroup"`
	// CgroupLines is /proc/self/cgroup.
	CgroupLines []string `json:"cgroupLines"`
}
