package lifecycle

import "fmt"

// Field is one setting that a policy can decide.
type Field int

// The fields. fieldTable has their names, units and composition rules.
const (
	CPUShares Field = iota
	CPUQuota
	CPUPeriod
	CPUSetCPUs
	CPUSetMems
	MemoryLimit
	Env        // an environment variable
	MountPoint // a mount
	DeviceNode // a device node
	Annotation // an annotation of the container
	Unified    // a file of cgroup v2
	OOMScoreAdj
	CDIDevice    // a CDI device
	Hugepages    // the limit for huge pages of one size
	BlockIOClass // a class of the runtime's block I/O configuration
	IOLimit      // a limit for a disk
	RDTClass     // a class of the runtime's RDT configuration
	RDTSchemata  // the shares of a resctrl group
	RDTGroup     // the resctrl group of the container
	RDTMonitor   // the resctrl group that measures the container
	CoreSched    // a group of threads with one core scheduling cookie
	ProcessLimit // a limit of a process resource (rlimit)
	ProcessIO    // the I/O priority of the processes
	ProcessSched // the scheduling policy of the processes
	MemPolicy    // the NUMA memory policy of the first process
	SysctlEntry  // a kernel parameter of the container's namespaces
	NetDevice    // an interface of the host that the container gets
	InjectedHook // an OCI hook
	CgroupMount  // whether the container may write to its own cgroups
	IntelRDT     // a member of intelRdt in the OCI spec
	fieldCount   // the number of fields
)

// Scope reports whether a value is for a container or for its pod.
type Scope int

// The scopes of a value.
const (
	OfContainer Scope = iota
	OfPod
)

// String returns "container" or "pod".
func (s Scope) String() string { return [...]string{"container", "pod"}[s] }

// CompositionRule is the rule by which several proposals for one field are combined. Proposals come from hooks: parts
// of the agent that read the requests of pods and propose values.
type CompositionRule int

// The composition rules.
const (
	SetOnce       CompositionRule = iota // one hook sets the field; the proposal of a second hook is a conflict
	SmallestWins                         // several hooks may set the field; the smallest value counts
	SetOncePerKey                        // the field is a map; different hooks may set different keys, and a second proposal for a key is a conflict
	SetThenScaled                        // one hook may set the field; other hooks may scale that value or, without it, the runtime's request
)

// String returns the rule's name as the docs print it.
func (c CompositionRule) String() string {
	return [...]string{"set once", "smallest wins", "set once per key", "set once, then scaled"}[c]
}

// FieldInfo describes a field.
type FieldInfo struct {
	Field   Field
	Name    string          // the name in explain, status and the documentation
	Compose CompositionRule // how several proposals for the field are combined
	Unit    string          // the unit or the form of the values, for users
}

// fieldTable has a row for each field, in the order of the constants.
var fieldTable = [fieldCount]FieldInfo{
	{CPUShares, "cpu.shares", SetOnce, "shares (2..262144)"},
	{CPUQuota, "cpu.quota", SetThenScaled, "µs per period, -1 unlimited"},
	{CPUPeriod, "cpu.period", SetOnce, "µs"},
	{CPUSetCPUs, "cpuset.cpus", SetOnce, "CPU list"},
	{CPUSetMems, "cpuset.mems", SetOnce, "NUMA node list"},
	{MemoryLimit, "memory.limit", SetOnce, "bytes, -1 unlimited"},
	{Env, "env", SetOncePerKey, "text"},
	{MountPoint, "mount", SetOncePerKey, "mount"},
	{DeviceNode, "device", SetOncePerKey, "device node"},
	{Annotation, "annotation", SetOncePerKey, "text"},
	{Unified, "unified", SetOncePerKey, "text of the cgroup v2 file"},
	{OOMScoreAdj, "oom.score", SetOnce, "-1000..1000"},
	{CDIDevice, "cdi", SetOncePerKey, "vendor/class=name"},
	{Hugepages, "hugepages", SetOncePerKey, "bytes of huge pages of one size, -1 unlimited"},
	{BlockIOClass, "blockio.class", SetOnce, "class of the runtime's block I/O configuration"},
	{IOLimit, "io.limit", SetOncePerKey, "bytes or operations per second of a disk, -1 unlimited"},
	{RDTClass, "rdt.class", SetOnce, "class of the runtime's RDT configuration"},
	{RDTSchemata, "rdt.schemata", SetOncePerKey, "shares of a resctrl group, in percent"},
	{RDTGroup, "rdt.group", SetOnce, "name of a resctrl group"},
	{RDTMonitor, "rdt.monitor", SetOnce, "name of a resctrl group that measures"},
	{CoreSched, "core.sched", SetOnce, "group of threads with one core scheduling cookie"},
	{ProcessLimit, "rlimit", SetOncePerKey, "soft and hard limit of a process resource, such as 1024:4096"},
	{ProcessIO, "io.priority", SetOnce, "class and level, such as IOPRIO_CLASS_BE 4"},
	{ProcessSched, "scheduler", SetOnce, "policy and its numbers, such as SCHED_BATCH nice=5; times in ns"},
	{MemPolicy, "memory.policy", SetOnce, "mode, nodes and flags, such as MPOL_BIND nodes=0-1"},
	{SysctlEntry, "sysctl", SetOncePerKey, "text of a kernel parameter of the container's namespaces"},
	{NetDevice, "net.device", SetOncePerKey, "name in the container, by interface of the host"},
	{InjectedHook, "oci.hook", SetOncePerKey, "an OCI hook as JSON, by stage and name"},
	{CgroupMount, "cgroup.mount", SetOnce, "rw: the container may write to its own cgroups"},
	{IntelRDT, "intel.rdt", SetOncePerKey, "text, by closid, schemata and monitoring"},
}

// Fields returns the table of all fields, in order.
func Fields() []FieldInfo { return fieldTable[:] }

// FieldSet is a set of fields.
type FieldSet uint64

// FieldsWhere returns the set of the fields that meet a condition.
func FieldsWhere(meets func(Field) bool) (s FieldSet) {
	for f := range fieldCount {
		if meets(f) {
			s |= 1 << f
		}
	}
	return s
}

// Has reports whether a field is in the set.
func (s FieldSet) Has(f Field) bool { return s>>f&1 != 0 }

// Without returns a copy of the set that does not have the field f.
func (s FieldSet) Without(f Field) FieldSet { return s &^ (1 << f) }

// Info returns the field's name, composition rule and unit.
func (f Field) Info() FieldInfo { return fieldTable[f] }

// String returns the field's name.
func (f Field) String() string {
	if f < 0 || f >= fieldCount {
		return fmt.Sprintf("Field(%d)", int(f))
	}
	return fieldTable[f].Name
}

// MarshalText makes a Field readable in JSON and YAML.
func (f Field) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (f *Field) UnmarshalText(b []byte) error {
	for _, i := range fieldTable {
		if i.Name == string(b) {
			*f = i.Field
			return nil
		}
	}
	return fmt.Errorf("unknown field %q", b)
}

// Reason describes the source of a value.
type Reason struct {
	Hook   string `json:"hook"`             // the hook that proposed the value
	Source string `json:"source,omitempty"` // annotation or label key, or configuration path
	Text   string `json:"text,omitempty"`   // one short clause for users
}

// HookAndSource returns the name of the hook, followed by the source that it read.
func (r Reason) HookAndSource() string {
	if r.Source == "" {
		return r.Hook
	}
	return r.Hook + " from " + r.Source
}

// Value is a setting with its value. Int has the value of a numeric field (shares, µs, bytes). Text has a list
// or string. Key names the entry of a field that has entries, such as an environment variable, an annotation,
// a cgroup v2 file, a path or a kernel parameter.
type Value struct {
	Field  Field   `json:"field"`
	Scope  Scope   `json:"-"`
	Key    string  `json:"key,omitempty"`
	Int    int64   `json:"int,omitempty"`
	Text   string  `json:"text,omitempty"`
	Mount  *Mount  `json:"mount,omitempty"`
	Device *Device `json:"device,omitempty"`
	Why    Reason  `json:"why"`
	// Remove removes the entry instead of setting it. Only environment variables can be
	// removed.
	Remove bool `json:"gone,omitempty"`
	// Scaled means that the value was computed from the value in the runtime's request.
	Scaled bool `json:"-"`
}

// IsNumeric reports whether the field's value is in Int.
func (f Field) IsNumeric() bool {
	switch f {
	case CPUShares, CPUQuota, CPUPeriod, MemoryLimit, OOMScoreAdj, Hugepages, IOLimit:
		return true
	}
	return false
}

// Setting returns the name of the field, followed by the key if the value has one.
func (v Value) Setting() string {
	if v.Key == "" {
		return v.Field.String()
	}
	return v.Field.String() + " " + v.Key
}

// String formats the value without its field and key.
func (v Value) String() string {
	switch {
	case v.Remove:
		return "(removed)"
	case v.Field.IsNumeric():
		return fmt.Sprint(v.Int)
	case v.Mount != nil:
		return v.Mount.Source + " -> " + v.Mount.Destination
	case v.Device != nil:
		return v.Device.String()
	}
	return v.Text
}

// SameSetting reports whether two values have the same field, key and content. Their reasons may
// differ.
func (v Value) SameSetting(o Value) bool {
	return v.Field == o.Field && v.Scope == o.Scope && v.Key == o.Key && v.String() == o.String()
}

// Problem is a fault in a request, or a reason why the agent cannot serve a request. Only strict
// mode refuses a pod because of a problem.
type Problem struct {
	Key    string `json:"key,omitempty"`   // annotation or label key
	Value  string `json:"value,omitempty"` // the value of Key, shortened
	Reason string `json:"reason"`
	Hook   string `json:"hook,omitempty"` // the hook that the problem is about; "" for none
	// Then describes in one clause what the agent does because of the problem. It is "" if strict mode refuses the pod.
	Then string `json:"then,omitempty"`
	// Warning marks a probable mistake in a request, or a failure that the pod did not cause. Strict mode does not
	// refuse the pod because of it.
	Warning bool `json:"warning,omitempty"`
	// Refused marks a well-formed request that the agent does not grant, because a rule forbids
	// it or too little is free.
	Refused bool `json:"refused,omitempty"`
	// Rule names the authorization rule that refused the request; "" if no rule did.
	Rule string `json:"rule,omitempty"`
	// More is the number of problems that this entry replaces in a list that was too long. It is 0 for an ordinary
	// problem.
	More int `json:"more,omitempty"`
	// Unserved marks a well-formed request that has no effect on this node, because its hook is disabled
	// or its key is not supported. Strict mode does not refuse the pod, because the node's configuration
	// is the cause.
	Unserved bool `json:"unserved,omitempty"`
}

// Kind returns the kind of the problem: "unserved", "refused", "warning" or "error".
func (p Problem) Kind() string {
	switch {
	case p.Unserved:
		return "unserved"
	case p.Warning:
		return "warning"
	case p.Refused:
		return "refused"
	}
	return "error"
}

// Sentence returns the reason of the problem, followed by Then if it is set.
func (p Problem) Sentence() string {
	if p.Then == "" {
		return p.Reason
	}
	return p.Reason + "; " + p.Then
}

// String returns the key, the value and the reason of the problem, without Then.
func (p Problem) String() string {
	if p.Key == "" {
		return p.Reason
	}
	if p.Value == "" {
		return p.Key + ": " + p.Reason
	}
	return fmt.Sprintf("%s: %q: %s", p.Key, p.Value, p.Reason)
}
