package api

import (
	"fmt"
	"slices"
	"time"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodelock"
)

// Node is the agent's answer to `trimtab status`.
type Node struct {
	Version string `json:"version"`
	// Simulated means that the node is simulated from a description. The /proc of this machine therefore does not show
	// how busy the node's CPUs are.
	Simulated bool `json:"described,omitempty"`
	// Agent is the process that answers.
	Agent nodelock.Holder `json:"agent,omitzero"`
	// Standby says why the agent decides nothing: another agent works on this node. This agent takes over when the
	// other agent ends. Standby is "" if no other agent works.
	Standby     string    `json:"standby,omitempty"`
	Started     time.Time `json:"started"`
	ConfigFile  string    `json:"configFile,omitempty"`
	ConfigGen   uint64    `json:"configGeneration"`      // number of configurations that were in force since the start
	ConfigError string    `json:"configError,omitempty"` // why a newer configuration file is not in force
	// NotReady says why /readyz fails; "" while the agent is ready.
	NotReady string `json:"notReady,omitempty"`
	// Unsaved are state files that the agent could not write, with the reason.
	Unsaved []string `json:"unsaved,omitempty"`
	// Released means that the agent has restored all values and decides nothing.
	Released bool `json:"released,omitempty"`
	// ReleasedAt is when the agent was released; missing if Released is false.
	ReleasedAt time.Time `json:"releasedAt,omitzero"`
	// Observed is the last comparison of the node with the decisions. It is nil if the agent does not run with
	// mode: observe.
	Observed    *Observed    `json:"observed,omitempty"`
	Attachments []Attachment `json:"attachments"`
	CPUs        NodeCPUs     `json:"cpus"`
	Hooks       []Hook       `json:"hooks,omitempty"`
	// Rules are the rules of the configuration, in the order in which the agent evaluates them.
	Rules    []Rule       `json:"rules,omitempty"`
	PodSpecs []SpecSource `json:"podSpecs,omitempty"`
	// Grants is the state of the kubelet's PodResources API, from which the agent knows which devices the kubelet
	// assigned.
	Grants *SpecSource `json:"deviceGrants,omitempty"`
	// KubeletCPUs says how the agent knows which CPUs the kubelet has assigned. It is "" if the kubelet assigns no CPUs
	// (placement.authority is not kubelet).
	KubeletCPUs string `json:"kubeletCPUs,omitempty"`
	// HookServers is the state of the hook servers; nil if hookServers.directory is empty.
	HookServers *HookServers `json:"hookServers,omitempty"`
	// ResourcePlugins is the state of the plugins that allocate resources for pods; nil if no plugin can register.
	ResourcePlugins *ResourcePlugins `json:"resourcePlugins,omitempty"`
	// CPUClasses is the state of the CPU classes; nil if no CPU has a class.
	CPUClasses *CPUClasses `json:"cpuClasses,omitempty"`
	// Demotion is how much memory the kernel has moved to slow memory nodes; nil if demotion is not configured.
	Demotion *Demotion `json:"demotion,omitempty"`
	// CDIDevices are the kinds of CDI devices that the agent assigns exclusively; nil if there are none.
	CDIDevices []DeviceKind `json:"cdiDevices,omitempty"`
	// NRIHost is the state of the agent's NRI host; nil if it is disabled.
	NRIHost *NRIHost `json:"nriHost,omitempty"`
	// Cluster is the state of the services that use the API server; nil if cluster.enabled is false.
	Cluster    *Cluster    `json:"cluster,omitempty"`
	Containers []Container `json:"containers"`
	// Contested are files that other programs changed after the agent wrote them. First are the files that the agent
	// repairs less often, then the files that it no longer writes, then the others. In each of these groups, the most
	// often repaired file is first.
	Contested []Contested `json:"contested,omitempty"`
	// WithoutCgroup are running containers that have no cgroup in the tree at cgroup.root.
	WithoutCgroup []string `json:"withoutCgroup,omitempty"`
	Unapplied     int      `json:"unapplied"` // number of decided values that are not in force
	Problems      int      `json:"problems"`  // number of problems of pods and containers
}

// SpecSource is the state of a source of pod specs, or of the kubelet's PodResources API.
type SpecSource struct {
	Name  lifecycle.Source `json:"source"`
	Up    bool             `json:"up"`              // the source answers
	Pods  int              `json:"pods"`            // number of pods that the agent knows from the source
	Error string           `json:"error,omitempty"` // why the source does not answer, or another problem
	// WhyNoCPUs says why the PodResources API does not report which CPUs the kubelet has assigned. It is "" if the API
	// reports these CPUs. It is also "" for all sources other than the PodResources API.
	WhyNoCPUs string `json:"noCPUs,omitempty"`
}

// CPUSource says how the agent knows which CPUs the kubelet has assigned. The source must be the kubelet's PodResources
// API.
func (s SpecSource) CPUSource() string {
	if s.Up && s.WhyNoCPUs == "" {
		return "reported by the " + string(s.Name)
	}
	return "inferred from the kubelet's requests to the runtime: " + s.WhyNoCPUs
}

// State returns the state with its reason, for users.
func (s SpecSource) State() string {
	pods := fmt.Sprintf("%d pods", s.Pods)
	switch {
	case s.Up && s.Error != "":
		return "answers, " + pods + "; " + s.Error
	case s.Up:
		return "answers, " + pods
	case s.Pods > 0:
		return s.Error + "; " + pods + " known from earlier answers"
	}
	return s.Error
}

// Hook is a hook, and whether it can take effect on this node.
type Hook struct {
	Name    string            `json:"name"`
	Enabled bool              `json:"enabled"`   // in the configuration
	Finding lifecycle.Finding `json:"effective"` // whether the hook can take effect, and why not
}

// Effective says whether the hook can take effect, and why not.
func (h Hook) Effective() string {
	s := map[lifecycle.Support]string{
		lifecycle.Supported: "effective", lifecycle.NotSupported: "not effective", lifecycle.Unknown: "unknown",
	}[h.Finding.Support]
	return withReason(s, h.Finding.Why)
}

// Rule is a rule of the configuration, and how many pods and containers it has matched
// since the agent started.
type Rule struct {
	Name    string `json:"name"`
	Match   string `json:"match"`   // the rule's condition
	Matched uint64 `json:"matched"` // number of pods and containers
}

// HookServers is the state of the hook servers, which are external policies. The agent calls the servers in the order
// of Servers.
type HookServers struct {
	Directory string       `json:"directory"`
	Error     string       `json:"error,omitempty"`
	Servers   []HookServer `json:"servers,omitempty"`
}

// HookServer is a file in HookServers.Directory, and the state of the hook server that the file names.
type HookServer struct {
	File      string   `json:"file"`
	Endpoint  string   `json:"endpoint,omitempty"`
	Policy    string   `json:"failurePolicy,omitempty"` // what the agent does after a failed call
	Stages    []string `json:"stages,omitempty"`        // the lifecycle steps at which the agent calls the server
	InForce   bool     `json:"inForce"`                 // a valid version of the file is in force
	Suspended bool     `json:"resting,omitempty"`       // not called for some time, because several calls in a row had no answer
	Calls     uint64   `json:"calls"`
	Failed    uint64   `json:"failed"`
	Error     string   `json:"error,omitempty"`
}

// State returns the state with its reason, for users.
func (h HookServer) State() string {
	s := fmt.Sprintf("%s, %d stages, %s on failure", h.Endpoint, len(h.Stages), h.Policy)
	switch {
	case !h.InForce:
		s = "not in force"
	case h.Suspended:
		s += ", calls are paused"
	}
	if h.Calls > 0 {
		s += fmt.Sprintf(", %d calls, %d failed", h.Calls, h.Failed)
	}
	return withReason(s, h.Error)
}

// Connected reports whether a runtime is attached.
func (n *Node) Connected() bool {
	return slices.ContainsFunc(n.Attachments, func(a Attachment) bool { return a.State == "connected" })
}

// Attachment is an attachment and the state of its connection to the runtime.
type Attachment struct {
	Name    string `json:"name"`
	State   string `json:"state"` // such as "connected", or "waiting for socket"
	Runtime string `json:"runtime,omitempty"`
	// RequestTimeout and RegistrationTimeout are the runtime's timeouts for an answer and for a registration. They are
	// "" if the runtime did not report them.
	RequestTimeout      string `json:"requestTimeout,omitempty"`
	RegistrationTimeout string `json:"registrationTimeout,omitempty"`
	// Unsupported has the container fields that plugins can set in newer versions of the runtime, but not in this
	// version.
	Unsupported []string `json:"lacks,omitempty"`
	Error       string   `json:"error,omitempty"`
	// WhyActive says why the agent chose this attachment. It is "" if the configuration names the attachment (attach is
	// not auto).
	WhyActive string `json:"inForce,omitempty"`
}

// Live reports whether the attachment is connected to the runtime, or synchronised with it.
func (a Attachment) Live() bool { return a.State == "connected" || a.State == "synchronised" }

// NodeCPUs says who may use which CPUs of a node. The CPUs are lists in the format of the kernel, such as 0-3,8.
type NodeCPUs struct {
	Online    string  `json:"online"`
	Reserved  string  `json:"reserved,omitempty"`  // CPUs of pools.reserved
	Exclusive string  `json:"exclusive,omitempty"` // CPUs that pods own
	Shared    string  `json:"shared"`              // CPUs of the default shared pool
	Reclaimed string  `json:"reclaimed"`           // CPUs of the pool for reclaimed containers
	Nodes     []NUMA  `json:"nodes"`
	Grants    []Grant `json:"grants,omitempty"`
	Pools     []Pool  `json:"pools,omitempty"`
}

// Pool is a set of CPUs that the containers of a pool share. A CPU may be in several pools.
type Pool struct {
	Name    string `json:"name"` // such as `shared`, `shared web`, `shared of node 1`
	Class   string `json:"class"`
	CPUs    string `json:"cpus"`
	Members int    `json:"members"` // number of live containers
}

// NUMA describes the CPUs and the memory of a NUMA node.
type NUMA struct {
	ID      int      `json:"id"`
	CPUs    string   `json:"cpus"`
	Package int      `json:"package"`          // socket of the first CPU; -1 for a node with only memory
	Cores   []string `json:"cores,omitempty"`  // the CPUs of each core
	Caches  []string `json:"caches,omitempty"` // the CPUs of each L3 cache, if there are several
	Memory  uint64   `json:"memory,omitempty"` // bytes
}

// Grant is a set of CPUs and the pod that owns it.
type Grant struct {
	Pod       string `json:"pod"` // namespace/name
	Container string `json:"container"`
	CPUs      string `json:"cpus"`
	// Mark is the pod's letter in drawings. The pod keeps it while it owns CPUs. It is "" if all 26 letters are used.
	Mark string `json:"mark,omitempty"`
	// Unusable are CPUs that the pod owns but cannot use now: they are offline, or missing in the pod's cgroup.
	Unusable string `json:"away,omitempty"`
}

// Container has the agent's decisions about a container, and what is in force.
type Container struct {
	Pod         string            `json:"pod"` // namespace/name
	Name        string            `json:"container,omitempty"`
	ID          string            `json:"id,omitempty"`
	State       string            `json:"state"`
	Class       string            `json:"class"`
	ClassFrom   string            `json:"classFrom,omitempty"` // the key that requested the class
	QoS         string            `json:"qos"`                 // Kubernetes QoS class
	CPUGroup    string            `json:"seat"`                // exclusive, or the name of the container's pool
	CPUs        string            `json:"cpus"`
	Limits      *Limits           `json:"limits,omitempty"`  // nil for a container that has ended
	Labels      map[string]string `json:"labels,omitempty"`  // labels of the pod
	CPUGroupWhy string            `json:"seatWhy,omitempty"` // why the container is in CPUGroup
	// CPUClasses are the classes of the container's CPUs. Only `trimtab explain` gets them. The list is nil if no CPU of
	// the node has a class.
	CPUClasses []ContainerCPUClass `json:"cpuClasses,omitempty"`
	// Demotion is how much memory was moved to slow memory nodes. Only `trimtab explain` gets it. It is nil if the
	// container does not have both fast and slow memory.
	Demotion  *ContainerDemotion  `json:"demotion,omitempty"`
	Facts     []Fact              `json:"facts,omitempty"` // only for `trimtab explain`
	Values    []Value             `json:"values,omitempty"`
	PodValues []Value             `json:"podValues,omitempty"`
	Problems  []lifecycle.Problem `json:"problems,omitempty"`
	// ReleasedAt is when 'trimtab release' made the agent restore all values; missing without a release. Only `trimtab
	// explain` gets it.
	ReleasedAt time.Time `json:"releasedAt,omitzero"`
}

// Limits are the limits of a container: the decided values, or else the values in the request to the runtime.
type Limits struct {
	CPUQuota  int64 `json:"cpuQuota"`  // µs in each period; -1 for no limit
	CPUPeriod int64 `json:"cpuPeriod"` // µs
	Memory    int64 `json:"memory"`    // bytes; -1 for no limit
}

// Contested is a kernel file that both the agent and another program write.
type Contested struct {
	Owner        string `json:"owner"` // container or sandbox id
	File         string `json:"file"`
	Repairs      uint64 `json:"writes"`         // number of repairs by the agent
	GaveUpReason string `json:"left,omitempty"` // why the agent no longer writes the file; empty if the agent still writes it
	// RepairReason says that the agent repairs the file less often, and why. The agent does so for cpuset files, whose
	// values separate the containers. RepairReason is empty for all other files.
	RepairReason string `json:"kept,omitempty"`
}

// Fact is a fact about a container or its pod, with its source.
type Fact struct {
	Name  string           `json:"fact"`
	Value string           `json:"value"`
	From  lifecycle.Source `json:"from"`
	Note  string           `json:"note,omitempty"`
}

// Value is one value that the agent decided, and whether it is in force.
type Value struct {
	Field   string           `json:"field"` // the name of the field; if the field has entries, the name and the key of one entry, such as "env NVIDIA_VISIBLE_DEVICES"
	Value   string           `json:"value"`
	Why     lifecycle.Reason `json:"why"`
	Channel string           `json:"channel"`        // how the value reached the container, such as "nri create" or "kernel"
	Applied bool             `json:"applied"`        // the value is in force
	Note    string           `json:"note,omitempty"` // why the value is not in force, or another remark
	// Kernel and Missing are set only in mode observe. Kernel is the value that the node has now. Missing is why
	// the decided value is not in force.
	Kernel  string        `json:"kernel,omitempty"`
	Missing MissingReason `json:"missing,omitempty"`
}

// NotApplied counts the values that are not in force.
func NotApplied(values []Value) (n int) {
	for _, v := range values {
		if !v.Applied {
			n++
		}
	}
	return n
}

// Observed is the comparison of the node's values with the decided values, in mode observe.
type Observed struct {
	Compared int `json:"compared"` // number of decided values that were compared with the node's files
	Differ   int `json:"differ"`   // number of these values that differ
	// Settings counts the values that differ, by setting.
	Settings map[string]int `json:"settings,omitempty"`
}

// MissingReason is a kind of reason why a value is not in force.
type MissingReason string

// The kinds of reasons. The field Note of a Value explains the reason in a sentence.
const (
	NotYet        MissingReason = "not yet"        // the cgroup does not exist yet, or the agent is writing the value
	NoCgroup      MissingReason = "no cgroup"      // the container runs, but its cgroup is not in the tree at cgroup.root
	NotCarried    MissingReason = "not carried"    // the attachment cannot set the value
	Ceded         MissingReason = "ceded"          // nri.cede leaves the field to another plugin
	CreateOnly    MissingReason = "create only"    // the container was created without the value
	BadCgroup     MissingReason = "bad cgroup"     // the agent does not know the path of the cgroup
	KernelRefused MissingReason = "kernel refused" // refused by the kernel, or by the agent's check before the write
	LeftAlone     MissingReason = "left alone"     // another program keeps writing the file, and the agent gave up
	Differs       MissingReason = "differs"        // mode observe: the node has another value
	NotCompared   MissingReason = "not compared"   // mode observe: no file of the node shows the value
)

// MissingReasons returns all kinds of reasons.
func MissingReasons() []MissingReason {
	return []MissingReason{NotYet, NoCgroup, NotCarried, Ceded, CreateOnly, BadCgroup, KernelRefused, LeftAlone, Differs, NotCompared}
}

// Summary is the state of the node in numbers, for metrics. Its strings become values of metric labels, so each string
// has only a few possible values.
type Summary struct {
	Attached      bool // a runtime is attached
	Connections   []Connection
	Classes       map[string]int           // live containers, by class
	Unapplied     map[MissingReason]int    // decided values that are not in force
	Specs         map[lifecycle.Source]int // pods that have not ended, by the source of their spec
	Pools         []PoolSize
	PoolMembers   map[string]int    // live containers, by pool
	Exclusive     int               // CPUs that containers own
	WithoutCgroup int               // containers that run and have no cgroup in the tree at cgroup.root
	Kernel        map[string]uint64 // values written to the kernel, by result
	Drift         map[string]uint64 // values repaired after another program changed them, by setting
	Ceded         map[string]int    // values that the agent left to programs that keep writing them, by setting
	Contested     map[string]int    // values that other programs keep changing and that the agent keeps repairing, by setting
	LastSync      time.Time         // when the agent last read the runtime's list of containers; the zero time if it never did
	ConfigGen     uint64
	ConfigError   bool
	// Observed is the last comparison in mode observe; nil in mode enforce.
	Observed *Observed
	// CPUClasses counts the CPUs that do not have their class, and the values of CPU classes that the agent repaired.
	// It is nil if no CPU should have a class.
	CPUClasses *CPUClassCounts
	// Demotion is how much memory was moved to slow memory nodes; nil if demotion is not configured.
	Demotion *Demotion
	// HookServers has the hook servers, by the name of their file. The value is true if the file is in force and the
	// agent calls the server.
	HookServers map[string]bool
	// ResourcePlugins has the plugins by resource. The value is true if the plugin answers. PendingRemovals counts,
	// for each plugin, the ended pods whose allocations the plugin has not released yet.
	ResourcePlugins map[string]bool
	PendingRemovals map[string]int
	// NRIPlugins has the plugins of the NRI host, by name. The value is true if the plugin is connected.
	NRIPlugins map[string]bool
	// Cluster is the state of the services that use the API server; nil if cluster.enabled is false.
	Cluster *Cluster
}

// Connection is an attachment, its state, and all states that it can have.
type Connection struct {
	Attachment string // the name of the attachment
	State      string
	States     []string
	Live       bool // registered and synchronised
}

// PoolSize is how many CPUs of a NUMA node are in a pool.
type PoolSize struct {
	Pool string
	Node int
	CPUs int
}

// Event is one line of `trimtab events`.
type Event struct {
	Seq       uint64              `json:"seq"`          // the sequence number of the event in the journal
	Op        string              `json:"op,omitempty"` // the id of the event in the log
	Time      time.Time           `json:"time"`
	Kind      string              `json:"kind"`
	From      string              `json:"from"` // where the event came from, such as nri or kernel
	Pod       string              `json:"pod,omitempty"`
	PodUID    string              `json:"-"` // the pod's UID; for Kubernetes events, and not shown by 'trimtab events'
	Container string              `json:"container,omitempty"`
	Took      time.Duration       `json:"tookNanoseconds"` // how long the agent handled the event
	Values    []Value             `json:"values,omitempty"`
	Changed   []string            `json:"changed,omitempty"` // what other containers lost or got
	Problems  []lifecycle.Problem `json:"problems,omitempty"`
	Rejected  string              `json:"rejected,omitempty"` // why the agent refused the pod or container
	Unaligned bool                `json:"-"`                  // the agent's topology manager rejected the container
	// DecidedBefore means that the agent had already decided about this creation of a container, through another
	// attachment. The agent recognised the container by the signed record that it had added to the container at the
	// first decision. The first decision stays in force.
	DecidedBefore bool `json:"again,omitempty"`
}
