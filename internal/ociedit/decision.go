package ociedit

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// DecisionVersion is the only version of the format of decision files that this package writes and reads.
const DecisionVersion = 1

// Decision says what to change in the config.json of one container. A field that is absent changes nothing. The OCI
// runtime spec defines the units and names.
type Decision struct {
	Version int    `json:"version"`
	ID      string `json:"id"` // the id that the OCI runtime gets for the container

	// Args replace the arguments of the process.
	Args []string `json:"args,omitempty"`
	// Env are the environment variables to set or remove.
	Env []Env `json:"env,omitempty"`
	// Mounts are the mounts to set or remove. Each replaces the mount with the same destination, or is added at the end
	// of the list.
	Mounts []Mount `json:"mounts,omitempty"`
	// Devices are the devices to set or remove. Each replaces the device with the same path, or is added. For each
	// block and character device that is set, a rule is added that allows access in the device cgroup.
	Devices []Device `json:"devices,omitempty"`
	// DeviceRules are added to the rules of the device cgroup.
	DeviceRules []DeviceRule `json:"deviceRules,omitempty"`
	// Rlimits are the limits to set. Each replaces the limit of the same type, or is added.
	Rlimits []Rlimit `json:"rlimits,omitempty"`
	// Hooks are the OCI hooks to append, by stage: prestart, createRuntime, createContainer, startContainer,
	// poststart, poststop.
	Hooks map[string][]Hook `json:"hooks,omitempty"`
	// Annotations are the annotations to set. null removes an annotation.
	Annotations map[string]*string `json:"annotations,omitempty"`
	// Sysctl are the sysctls to set.
	Sysctl map[string]string `json:"sysctl,omitempty"`
	// Namespaces are the namespaces to set. Each replaces the namespace of the same type, or is added.
	Namespaces []Namespace `json:"namespaces,omitempty"`
	// NetDevices are the network interfaces to move from the host into the container. The keys are the names on the
	// host, and the values are the names in the container.
	NetDevices map[string]string `json:"netDevices,omitempty"`
	// IOPriority, Scheduler, MemoryPolicy and OOMScoreAdj replace the field of the same name in config.json. Each
	// member of RDT that is set replaces the same member of linux.intelRdt.
	IOPriority   *IOPriority   `json:"ioPriority,omitempty"`
	Scheduler    *Scheduler    `json:"scheduler,omitempty"`
	MemoryPolicy *MemoryPolicy `json:"memoryPolicy,omitempty"`
	RDT          *RDT          `json:"intelRdt,omitempty"`
	OOMScoreAdj  *int          `json:"oomScoreAdj,omitempty"`
	// Seccomp replaces the whole linux.seccomp.
	Seccomp json.RawMessage `json:"seccomp,omitempty"`
	// Resources is a JSON object whose members are merged into linux.resources.
	Resources json.RawMessage `json:"resources,omitempty"`
}

// Env is an environment variable of the process.
type Env struct {
	Name   string `json:"name"`
	Value  string `json:"value,omitempty"`
	Remove bool   `json:"remove,omitempty"` // remove the variable instead of setting it
}

// Mount is a mount of the container.
type Mount struct {
	Destination string   `json:"destination"`
	Type        string   `json:"type,omitempty"`
	Source      string   `json:"source,omitempty"`
	Options     []string `json:"options,omitempty"`
	Remove      bool     `json:"remove,omitempty"` // remove the mount instead of setting it
}

// Device is a device node of the container. Access is what the device cgroup allows, such as "r" or "rw". The default
// is "rwm".
type Device struct {
	Path     string  `json:"path"`
	Type     string  `json:"type,omitempty"`
	Major    int64   `json:"major,omitempty"`
	Minor    int64   `json:"minor,omitempty"`
	FileMode *uint32 `json:"fileMode,omitempty"`
	UID      *uint32 `json:"uid,omitempty"`
	GID      *uint32 `json:"gid,omitempty"`
	Access   string  `json:"access,omitempty"`
	Remove   bool    `json:"remove,omitempty"` // remove the device instead of setting it
}

// DeviceRule is a rule of the device cgroup. An absent number means all numbers.
type DeviceRule struct {
	Allow  bool   `json:"allow"`
	Type   string `json:"type,omitempty"`
	Major  *int64 `json:"major,omitempty"`
	Minor  *int64 `json:"minor,omitempty"`
	Access string `json:"access,omitempty"`
}

// Rlimit is a POSIX resource limit, such as RLIMIT_NOFILE.
type Rlimit struct {
	Type string `json:"type"`
	Hard uint64 `json:"hard"`
	Soft uint64 `json:"soft"`
}

// Hook is an OCI hook. Timeout is in seconds. 0 means no timeout.
type Hook struct {
	Path    string   `json:"path"`
	Args    []string `json:"args,omitempty"`
	Env     []string `json:"env,omitempty"`
	Timeout int64    `json:"timeout,omitempty"`
}

// Namespace is a Linux namespace. An empty path means a new namespace.
type Namespace struct {
	Type string `json:"type"`
	Path string `json:"path,omitempty"`
}

// IOPriority is the block I/O priority of the process: the scheduling class, such as IOPRIO_CLASS_BE, and the level in
// this class.
type IOPriority struct {
	Class    string `json:"class"`
	Priority int    `json:"priority"`
}

// Scheduler is the CPU scheduling of the process. Times are in nanoseconds.
type Scheduler struct {
	Policy   string   `json:"policy"`
	Nice     int32    `json:"nice,omitempty"`
	Priority int32    `json:"priority,omitempty"`
	Flags    []string `json:"flags,omitempty"`
	Runtime  uint64   `json:"runtime,omitempty"`
	Deadline uint64   `json:"deadline,omitempty"`
	Period   uint64   `json:"period,omitempty"`
}

// MemoryPolicy is the NUMA memory policy of the process.
type MemoryPolicy struct {
	Mode  string   `json:"mode"`
	Nodes string   `json:"nodes,omitempty"`
	Flags []string `json:"flags,omitempty"`
}

// RDT is the section linux.intelRdt of the OCI spec.
type RDT struct {
	ClosID           string   `json:"closID,omitempty"`
	Schemata         []string `json:"schemata,omitempty"`
	EnableMonitoring bool     `json:"enableMonitoring,omitempty"`
}

// hookStages are the stages of OCI hooks, in the order in which they run.
var hookStages = []string{"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}

// Empty reports whether a decision changes nothing.
func (d *Decision) Empty() bool {
	text, err := json.Marshal(d)
	bare, _ := json.Marshal(Decision{Version: d.Version, ID: d.ID})
	return err == nil && string(text) == string(bare)
}

// Check returns an error for an invalid decision. It does not check values that the OCI runtime checks itself.
func (d *Decision) Check() error {
	if d.Version != DecisionVersion {
		return fmt.Errorf("the version of the decision is %d, but only version %d is supported", d.Version, DecisionVersion)
	}
	if err := CheckID(d.ID); err != nil {
		return err
	}
	for _, e := range d.Env {
		if e.Name == "" || strings.ContainsAny(e.Name, "=\x00") || strings.Contains(e.Value, "\x00") {
			return fmt.Errorf("env: variable %q: the name is empty or has = or a NUL byte, or the value has a NUL byte", e.Name)
		}
	}
	for _, m := range d.Mounts {
		if !strings.HasPrefix(m.Destination, "/") {
			return fmt.Errorf("mounts: destination %q is not an absolute path", m.Destination)
		}
	}
	if err := d.checkDevices(); err != nil {
		return err
	}
	for _, r := range d.Rlimits {
		if !strings.HasPrefix(r.Type, "RLIMIT_") || r.Soft > r.Hard {
			return fmt.Errorf("rlimits: type %q, soft %d, hard %d: the type must begin with RLIMIT_, and soft must not be above hard", r.Type, r.Soft, r.Hard)
		}
	}
	return d.checkHooks()
}

// checkDevices checks the paths and types of the devices.
func (d *Decision) checkDevices() error {
	for _, dev := range d.Devices {
		if !strings.HasPrefix(dev.Path, "/") || !dev.Remove && !slices.Contains([]string{"b", "c", "u", "p"}, dev.Type) {
			return fmt.Errorf("devices: path %q, type %q: the path must be absolute, and the type must be b, c, u or p", dev.Path, dev.Type)
		}
	}
	return nil
}

// checkHooks checks the stages and paths of the hooks.
func (d *Decision) checkHooks() error {
	for stage, hooks := range d.Hooks {
		for _, h := range hooks {
			if !slices.Contains(hookStages, stage) || !strings.HasPrefix(h.Path, "/") {
				return fmt.Errorf("hooks: stage %q, path %q: the stage must be one of %s, and the path must be absolute", stage, h.Path, strings.Join(hookStages, ", "))
			}
		}
	}
	return nil
}

// CheckID returns an error for a container id that must not be a part of a file name.
func CheckID(id string) error {
	if len(id) > 200 || strings.Trim(id, ".") == "" || strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-+") != "" {
		return fmt.Errorf("%q is not a valid container id: an id has 1 to 200 letters, digits, and characters _ . - +, and not only dots", id)
	}
	return nil
}
