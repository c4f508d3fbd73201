package config

import "time"

// APIVersion and Kind are what every configuration file starts with.
const (
	APIVersion = "trimtab.io/v1alpha1"
	Kind       = "Config"
)

// Config is the whole configuration of an agent: one YAML document.
type Config struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Strict refuses to create a container whose annotations are malformed.
	// Off, the pod runs with defaults and the problem is reported.
	Strict bool `json:"strict"`
	// Dialects are the annotation dialects read, first wins where two
	// disagree.
	Dialects []string `json:"dialects"`
	Pools    Pools    `json:"pools"`
	Hooks    Hooks    `json:"hooks"`
	NRI      NRI      `json:"nri"`
	Cgroup   Cgroup   `json:"cgroup"`
	Paths    Paths    `json:"paths"`
	Log      Log      `json:"log"`
}

// Pools says which CPUs the shared pools are made of. CPUs owned exclusively
// by a container are taken out of every pool by themselves.
type Pools struct {
	// Reserved CPUs are in neither pool and are never assigned exclusively.
	Reserved string `json:"reserved"`
	// Shared and Reclaimed are CPU lists; empty means all online CPUs less the
	// reserved ones.
	Shared    string `json:"shared"`
	Reclaimed string `json:"reclaimed"`
	// System is the CPU list of containers of class system; empty treats
	// them like pods without a class.
	System string `json:"system"`
}

// Hooks switches and tunes each hook.
type Hooks struct {
	CPUSet CPUSetHook `json:"cpuset"`
	Batch  BatchHook  `json:"batch"`
	GPU    GPUHook    `json:"gpu"`
}

// CPUSetHook tunes the cpuset hook.
type CPUSetHook struct {
	Enabled bool `json:"enabled"`
	// UnsetQuota lifts the CFS quota of containers that own their CPUs.
	UnsetQuota bool `json:"unsetQuota"`
	// Unlabelled says what pods without a class get: "leave" touches them only
	// where exclusive CPUs must be kept clear, "shared" puts them into the
	// shared pool.
	Unlabelled string `json:"unlabelled"`
	// ReclaimedByNUMA puts a reclaimed pod for which the scheduler chose NUMA
	// nodes into the reclaimed pool of those nodes.
	ReclaimedByNUMA bool `json:"reclaimedByNUMA"`
}

// BatchHook tunes the batch resource hook.
type BatchHook struct {
	Enabled bool `json:"enabled"`
}

// GPUHook tunes the GPU environment hook.
type GPUHook struct {
	Enabled bool `json:"enabled"`
	// HAMiLibrary is the host path of libvgpu.so for shared GPUs.
	HAMiLibrary string `json:"hamiLibrary"`
}

// NRI configures the NRI attachment.
type NRI struct {
	Enabled bool   `json:"enabled"`
	Socket  string `json:"socket"`
	Name    string `json:"name"`
	Index   string `json:"index"` // two digits
	// UpdateInterval paces updates of the runtime's stored copy of live
	// containers, in milliseconds between two containers.
	UpdateInterval int `json:"updateIntervalMilliseconds"`
}

// Pace returns UpdateInterval as a duration.
func (n NRI) Pace() time.Duration { return time.Duration(n.UpdateInterval) * time.Millisecond }

// Cgroup says where the kernel's cgroup files are.
type Cgroup struct {
	Root string `json:"root"`
	// Version is "auto", "v1" or "v2".
	Version string `json:"version"`
}

// Paths are the files and directories of the agent.
type Paths struct {
	Sys          string `json:"sys"`          // root of sysfs
	StatusSocket string `json:"statusSocket"` // root-only
	// Key is the file of the secret that signs records. It is made at the
	// first start; it lies apart from any state directory, so that records
	// stay readable when state is deleted.
	Key   string `json:"key"`
	State string `json:"state"`
}

// Log configures the agent's log.
type Log struct {
	Level  string `json:"level"`  // debug, info, warn, error
	Format string `json:"format"` // text or json
}

// Default returns the configuration that is in force where a file says
// nothing.
func Default() Config {
	return Config{
		APIVersion: APIVersion,
		Kind:       Kind,
		Dialects:   []string{"koordinator", "kubernetes"},
		Hooks: Hooks{
			CPUSet: CPUSetHook{Enabled: true, UnsetQuota: true, Unlabelled: "leave"},
			Batch:  BatchHook{Enabled: true},
			GPU:    GPUHook{Enabled: true, HAMiLibrary: "/usr/local/vgpu/libvgpu.so"},
		},
		NRI: NRI{
			Enabled: true, Socket: "/var/run/nri/nri.sock", Name: "trimtab", Index: "90",
			UpdateInterval: 50,
		},
		Cgroup: Cgroup{Root: "/sys/fs/cgroup", Version: "auto"},
		Paths: Paths{
			Sys: "/sys", StatusSocket: "/run/trimtab/trimtab.sock",
			Key: "/etc/trimtab/record.key", State: "/var/lib/trimtab",
		},
		Log: Log{Level: "info", Format: "text"},
	}
}
