package lifecycle

import (
	"fmt"
	"slices"
	"strings"
)

// Pod is a pod sandbox as the runtime reports it. Field names follow NRI and CRI.
type Pod struct {
	ID             string
	Name           string
	UID            string
	Namespace      string
	Labels         map[string]string
	Annotations    map[string]string
	RuntimeHandler string
	// CgroupParent is the pod's cgroup directory in the runtime's notation: a
	// path below the hierarchy root (cgroupfs) or a slice name (systemd).
	CgroupParent string
	// CgroupsPath is the sandbox container's own OCI cgroupsPath.
	CgroupsPath string
	Namespaces  []Namespace
	// HostNetwork means that the pod uses the host's network namespace, and HostIPC the host's IPC namespace.
	// Both are false if the runtime reports no namespaces.
	HostNetwork, HostIPC bool
	// Overhead is the pod overhead of the runtime class. Resources are the resources that the kubelet computed
	// for the whole pod. Sandbox are the resources of the sandbox container.
	Overhead  *Resources
	Resources *Resources
	Sandbox   *Resources
	PID       uint32
	IPs       []string
	// Undescribed is the reason why the runtime could not return the pod's status; "" if it returned the
	// status. If Undescribed is set, the other fields come from the runtime's list of pods.
	Undescribed string
	// Claimed are the CDI devices with which the pod's resource claims select a class, pool or balloon
	// type. No runtime reports these devices for a pod, so the agent adds them.
	Claimed []ClaimedDevice
}

// State is the life state of a container.
type State int

// The states of a container, in the order NRI numbers them.
const (
	StateUnknown State = iota
	StateCreated
	StatePaused
	StateRunning
	StateStopped
)

// String returns the lower-case name of the state.
func (s State) String() string {
	return [...]string{"unknown", "created", "paused", "running", "stopped"}[min(max(s, 0), StateStopped)]
}

// UnnamedContainer is the name of a container whose name the runtime has not reported. Kubernetes forbids
// parentheses in names, so no real container has this name.
const UnnamedContainer = "(unnamed)"

// Container is a container as the runtime reports it.
type Container struct {
	ID           string
	PodID        string
	Name         string
	State        State
	Labels       map[string]string
	Annotations  map[string]string
	Args         []string
	Env          []string // "NAME=value"
	Mounts       []Mount
	Hooks        *OCIHooks
	Namespaces   []Namespace
	Devices      []Device
	CDIDevices   []string // vendor/class=name
	Resources    Resources
	OOMScoreAdj  Opt[int64]
	CgroupsPath  string
	IOPriority   *IOPriority
	Seccomp      *SecurityProfile
	SeccompRules *SeccompPolicy
	Sysctl       map[string]string
	NetDevices   map[string]string // name on the host -> name in the container
	Scheduler    *Scheduler
	RDT          *RDT
	Rlimits      []Rlimit
	User         *User
	Image        *Image
	PID          uint32
	// Undescribed is the reason why the runtime could not return the status of the container or of the
	// container's pod; "" if it returned both. If Undescribed is set, the other fields may come from the
	// runtime's list of containers, and Resources may be unknown.
	Undescribed string
	CreatedAt   int64 // in ns since 1970, like StartedAt and FinishedAt
	StartedAt   int64
	FinishedAt  int64
	ExitCode    int32
	Reason      string // one word for why the container is in its state
	Message     string // a text for users about the state
}

// Namespace is one Linux namespace of a pod or container.
type Namespace struct{ Type, Path string }

// Mount is one mount of a container.
type Mount struct {
	Destination string
	Type        string
	Source      string
	Options     []string
}

// IsBind reports whether the mount is a bind mount. A mount without a type is one, because the CRI
// requests only bind mounts and sends no type.
func (m Mount) IsBind() bool {
	return m.Type == "bind" || m.Type == "" || slices.ContainsFunc(m.Options, func(o string) bool { return o == "bind" || o == "rbind" })
}

// OCIHook is one OCI lifecycle hook. Timeout is in seconds, 0 for none.
type OCIHook struct {
	Path    string
	Args    []string
	Env     []string
	Timeout int64
}

// OCIHooks are the OCI hooks of a container, by the stage at which they run.
type OCIHooks struct {
	Prestart, CreateRuntime, CreateContainer, StartContainer, Poststart, Poststop []OCIHook
}

// Device is a device node inside a container. Type is b, c, u or p, as in the OCI runtime spec.
type Device struct {
	Path string
	// Host is the device's path on the host; "" if it equals Path or is unknown.
	Host     string `json:",omitempty"`
	Type     string
	Major    int64
	Minor    int64
	FileMode Opt[uint32]
	UID      Opt[uint32]
	GID      Opt[uint32]
}

// String prints path, type and numbers.
func (d Device) String() string {
	return fmt.Sprintf("%s %s %d:%d", d.Path, d.Type, d.Major, d.Minor)
}

// DeviceRule is one rule of the device cgroup. Access is a combination of r, w and m.
type DeviceRule struct {
	Allow  bool
	Type   string
	Major  Opt[int64]
	Minor  Opt[int64]
	Access string
}

// IOPriority is the block I/O scheduling class and level of a container.
type IOPriority struct {
	Class    string // IOPRIO_CLASS_NONE, IOPRIO_CLASS_RT, IOPRIO_CLASS_BE or IOPRIO_CLASS_IDLE
	Priority int32
}

// SecurityProfile names the seccomp profile that was requested for a container. Localhost is the path of a profile on
// the node.
type SecurityProfile struct{ Type, Localhost string }

// SeccompPolicy summarises the seccomp filter of a container. Placement policies must not change the filter.
type SeccompPolicy struct {
	DefaultAction string
	Architectures []string
	Syscalls      int // the number of rules for system calls
}

// Scheduler is the OCI scheduler setting of a container. Times are in ns.
type Scheduler struct {
	Policy   string
	Nice     int32
	Priority int32
	Flags    []string
	Runtime  uint64
	Deadline uint64
	Period   uint64
}

// RDT is the intelRdt section of a container.
type RDT struct {
	ClosID     Opt[string]
	Schemata   []string
	Monitoring Opt[bool]
}

// Member returns a member of RDT as the text of a value of the field IntelRDT; "" if the member is not set. The key is
// closid, schemata or monitoring.
func (r *RDT) Member(key string) string {
	switch {
	case r == nil:
	case key == "closid":
		return r.ClosID.V
	case key == "schemata":
		return strings.Join(r.Schemata, ",")
	case key == "monitoring" && r.Monitoring.V:
		return "true"
	}
	return ""
}

// Rlimit is one POSIX resource limit.
type Rlimit struct {
	Type string
	Hard uint64
	Soft uint64
}

// User is the user a container's process runs as.
type User struct {
	UID        uint32
	GID        uint32
	Additional []uint32 // the ids of the supplementary groups
}

// Image names the image of a container.
type Image struct{ Name, Digest, ConfigDigest string }
