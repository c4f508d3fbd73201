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
	// Described means that the machine is a described one. This machine's /proc therefore does not show how busy
	// its CPUs are.
	Described bool `json:"described,omitempty"`
	// Agent is the process that answers.
	Agent nodelock.Holder `json:"agent,omitzero"`
	// Standby is why the agent decides nothing: another agent works on this node. This agent takes over when the
	// other one ends.
	Standby     string    `json:"standby,omitempty"`
	Started     time.Time `json:"started"`
	ConfigFile  string    `json:"configFile,omitempty"`
	ConfigGen   uint64    `json:"configGeneration"`
	ConfigError string    `json:"configError,omitempty"` // why a newer file is not in force
	// NotReady is why /readyz fails; "" while the agent is ready.
	NotReady string `json:"notReady,omitempty"`
	// Unsaved are state files that the agent could not write, with the reason.
	Unsaved []string `json:"unsaved,omitempty"`
	// Released means that the agent has restored all values and decides nothing.
	Released bool `json:"released,omitempty"`
	// ReleasedAt is when that began; missing if Released is false.
	ReleasedAt time.Time `json:"releasedAt,omitzero"`
	// Observed is the last comparison of the node with the decisions; nil unless the agent runs with mode: observe,
	// in which it changes nothing.
	Observed    *Observed  `json:"observed,omitempty"`
	Attachments []Attached `json:"attachments"`
	CPUs        NodeCPUs   `json:"cpus"`
	Hooks       []Hook     `json:"hooks,omitempty"`
	// Rules are the rules of the configuration, in the order in which the agent evaluates them.
	Rules    []Rule       `json:"rules,omitempty"`
	PodSpecs []SpecSource `json:"podSpecs,omitempty"`
	// Grants is the source of the devices that the kubelet assigned.
	Grants *SpecSource `json:"deviceGrants,omitempty"`
	// KubeletCPUs says how the agent knows which CPUs the kubelet has assigned; "" if the agent itself assigns
	// CPUs.
	KubeletCPUs string `json:"kubeletCPUs,omitempty"`
	// HookServers are external policies; nil if none is configured.
	HookServers *HookServers `json:"hookServers,omitempty"`
	// ResourcePlugins allocate resources that pods request; nil if none can register.
	ResourcePlugins *ResourcePlugins `json:"resourcePlugins,omitempty"`
	// NRIHost serves NRI to plugins of others; nil if it is off.
	NRIHost *NRIHost `json:"nriHost,omitempty"`
	// Cluster is the state of the API server's services; nil without cluster.enabled.
	Cluster    *Cluster    `json:"cluster,omitempty"`
	Containers []Container `json:"containers"`
	// Contested are files that other programs have changed after the agent wrote them, the most contested first.
	Contested []Contested `json:"contested,omitempty"`
	// WithoutCgroup are containers that run and have no cgroup in this tree.
	WithoutCgroup []string `json:"withoutCgroup,omitempty"`
	Unapplied     int      `json:"unapplied"`
	Problems      int      `json:"problems"`
}

// SpecSource is one source of the chain that reports what the runtime does not report.
type SpecSource struct {
	Name  lifecycle.Source `json:"source"`
	Up    bool             `json:"up"`
	Pods  int              `json:"pods"`
	Error string           `json:"error,omitempty"`
	// NoCPUs is why it does not report which CPUs the kubelet has assigned. It is "" if it reports them, and for
	// sources that have no CPUs.
	NoCPUs string `json:"noCPUs,omitempty"`
}

// CPUSource says how the agent knows which CPUs the kubelet has assigned, if this source is the kubelet's
// PodResources API.
func (s SpecSource) CPUSource() string {
	if s.Up && s.NoCPUs == "" {
		return "reported by the " + string(s.Name)
	}
	return "inferred from the kubelet's requests to the runtime: " + s.NoCPUs
}

// State is the state with its reason, for users.
func (s SpecSource) State() string {
	pods := fmt.Sprintf("%d pods", s.Pods)
	switch {
	case s.Up && s.Error != "":
		return "answers, " + pods + "; " + s.Error
	case s.Up:
		return "answers, " + pods
	case s.Pods > 0:
		return s.Error + "; " + pods + " known from before"
	}
	return s.Error
}

// Hook is a policy and whether it can take effect on this node.
type Hook struct {
	Name    string            `json:"name"`
	Enabled bool              `json:"enabled"`
	Finding lifecycle.Finding `json:"effective"`
}

// Effective is the effect with its reason, for users.
func (h Hook) Effective() string {
	s := map[lifecycle.Support]string{
		lifecycle.Supported: "effective", lifecycle.NotSupported: "not effective", lifecycle.Unknown: "unknown",
	}[h.Finding.Support]
	if h.Finding.Why != "" {
		s += ": " + h.Finding.Why
	}
	return s
}

// Rule is a rule of the configuration, and how many pods and containers it has matched
// since the agent started.
type Rule struct {
	Name    string `json:"name"`
	Match   string `json:"match"`
	Matched uint64 `json:"matched"`
}

// HookServers are the policies outside of Trimtab, in the order in which the agent calls them.
type HookServers struct {
	Directory string       `json:"directory"`
	Error     string       `json:"error,omitempty"`
	Servers   []HookServer `json:"servers,omitempty"`
}

// HookServer is one file of the directory, and the server it names.
type HookServer struct {
	File     string   `json:"file"`
	Endpoint string   `json:"endpoint,omitempty"`
	Policy   string   `json:"failurePolicy,omitempty"`
	Stages   []string `json:"stages,omitempty"`
	InForce  bool     `json:"inForce"`
	Resting  bool     `json:"resting,omitempty"` // not called for now
	Calls    uint64   `json:"calls"`
	Failed   uint64   `json:"failed"`
	Error    string   `json:"error,omitempty"`
}

// State is the state with its reason, for users.
func (h HookServer) State() string {
	s := fmt.Sprintf("%s, %d stages, %s on failure", h.Endpoint, len(h.Stages), h.Policy)
	switch {
	case !h.InForce:
		s = "not in force"
	case h.Resting:
		s += ", not called for now"
	}
	if h.Calls > 0 {
		s += fmt.Sprintf(", %d calls, %d failed", h.Calls, h.Failed)
	}
	if h.Error != "" {
		s += ": " + h.Error
	}
	return s
}

// Connected reports whether a runtime is attached.
func (n *Node) Connected() bool {
	return slices.ContainsFunc(n.Attachments, func(a Attached) bool { return a.State == "connected" })
}

// Attached is one attachment and its connection.
type Attached struct {
	Name    string `json:"name"`
	State   string `json:"state"` // e.g. waiting for socket, connected
	Runtime string `json:"runtime,omitempty"`
	// How long the runtime waits for an answer and for a registration, as it reported; empty if it did not.
	RequestTimeout      string `json:"requestTimeout,omitempty"`
	RegistrationTimeout string `json:"registrationTimeout,omitempty"`
	// Lacks are the fields that newer runtimes support and this one does not.
	Lacks []string `json:"lacks,omitempty"`
	Error string   `json:"error,omitempty"`
	// InForce says why this attachment is active, if another one could be (attach: auto).
	InForce string `json:"inForce,omitempty"`
}

// NodeCPUs says who may use which CPUs, as kernel lists.
type NodeCPUs struct {
	Online    string  `json:"online"`
	Reserved  string  `json:"reserved,omitempty"`
	Exclusive string  `json:"exclusive,omitempty"`
	Shared    string  `json:"shared"`
	Reclaimed string  `json:"reclaimed"`
	Nodes     []NUMA  `json:"nodes"`
	Grants    []Grant `json:"grants,omitempty"`
	Pools     []Pool  `json:"pools,omitempty"`
}

// Pool is a set of CPUs that the containers of a pool share. A CPU may be in several pools.
type Pool struct {
	Name    string `json:"name"` // such as `shared`, `shared web`, `shared of node 1`
	Class   string `json:"class"`
	CPUs    string `json:"cpus"`
	Members int    `json:"members"` // live containers
}

// NUMA is one NUMA node's CPUs.
type NUMA struct {
	ID      int      `json:"id"`
	CPUs    string   `json:"cpus"`
	Package int      `json:"package"`          // socket of its first CPU; -1 for a node with only memory
	Cores   []string `json:"cores,omitempty"`  // the CPUs of each core
	Caches  []string `json:"caches,omitempty"` // the CPUs of each L3 cache, if there are several
	Memory  uint64   `json:"memory,omitempty"` // bytes
}

// Grant is a set of CPUs and the pod that owns it.
type Grant struct {
	Pod       string `json:"pod"` // namespace/name
	Container string `json:"container"`
	CPUs      string `json:"cpus"`
	// Mark is the pod's letter in pictures. The pod keeps it while it owns CPUs. It is "" after the 26th owner.
	Mark string `json:"mark,omitempty"`
	// Away are CPUs that the pod owns but cannot use now: they are offline, or missing in its pod's cgroup.
	Away string `json:"away,omitempty"`
}

// Container is what the agent decided for one container, and what the container has.
type Container struct {
	Pod       string              `json:"pod"` // namespace/name
	Name      string              `json:"container,omitempty"`
	ID        string              `json:"id,omitempty"`
	State     string              `json:"state"`
	Class     string              `json:"class"`
	ClassFrom string              `json:"classFrom,omitempty"`
	QoS       string              `json:"qos"`  // Kubernetes QoS class
	CPUGroup  string              `json:"seat"` // exclusive, or the name of its pool
	CPUs      string              `json:"cpus"`
	Limits    *Limits             `json:"limits,omitempty"` // nil for a container that has ended
	Labels    map[string]string   `json:"labels,omitempty"` // of the pod
	SeatWhy   string              `json:"seatWhy,omitempty"`
	Facts     []Fact              `json:"facts,omitempty"` // in Explain alone
	Values    []Value             `json:"values,omitempty"`
	PodValues []Value             `json:"podValues,omitempty"`
	Problems  []lifecycle.Problem `json:"problems,omitempty"`
	// ReleasedAt is when the agent restored what it had decided, and stopped deciding; missing if it did not. In
	// Explain alone.
	ReleasedAt time.Time `json:"releasedAt,omitzero"`
}

// Limits are what a container may use: the decided values, or else the runtime's request.
type Limits struct {
	CPUQuota  int64 `json:"cpuQuota"`  // µs in each period; -1 for no limit
	CPUPeriod int64 `json:"cpuPeriod"` // µs
	Memory    int64 `json:"memory"`    // bytes; -1 for no limit
}

// Contested is a file of ours that another program writes too.
type Contested struct {
	Owner  string `json:"owner"` // container or sandbox id
	File   string `json:"file"`
	Writes uint64 `json:"writes"`         // that were put right
	Left   string `json:"left,omitempty"` // why the agent leaves the file to them; empty if it does not
	// Kept says why the agent still repairs the file, but less often, although another program keeps changing it:
	// its values keep containers apart.
	Kept string `json:"kept,omitempty"`
}

// Fact is a fact about a container or its pod, with its source.
type Fact struct {
	Name  string           `json:"fact"`
	Value string           `json:"value"`
	From  lifecycle.Source `json:"from"`
	Note  string           `json:"note,omitempty"`
}

// Value is one decided value and its state.
type Value struct {
	Field   string           `json:"field"` // with its key, e.g. env NVIDIA_VISIBLE_DEVICES
	Value   string           `json:"value"`
	Why     lifecycle.Reason `json:"why"`
	Channel string           `json:"channel"` // e.g. nri create, nri update, kernel
	Applied bool             `json:"applied"`
	Note    string           `json:"note,omitempty"` // why it is not applied, or another remark
	// Kernel is what the node has instead, in mode observe, and Missing why the value is not in force there.
	Kernel  string  `json:"kernel,omitempty"`
	Missing Missing `json:"missing,omitempty"`
}

// Observed is the comparison of the node with what Trimtab would have done, in mode observe.
type Observed struct {
	Compared int `json:"compared"` // decided values that the node's files were compared with
	Differ   int `json:"differ"`   // of these, the ones that the node has otherwise
	// Settings counts the values that differ, by setting.
	Settings map[string]int `json:"settings,omitempty"`
}

// Missing is a kind of reason for which a value is not in force.
type Missing string

// The kinds of reasons. A missing value also has a sentence that explains it.
const (
	NotYet        Missing = "not yet"        // its cgroup does not exist yet, or the value is being written
	NoCgroup      Missing = "no cgroup"      // the container runs, and its cgroup does not exist
	NotCarried    Missing = "not carried"    // the attachment cannot set it
	Ceded         Missing = "ceded"          // left to another plugin
	CreateOnly    Missing = "create only"    // the container was created without it
	BadCgroup     Missing = "bad cgroup"     // the agent does not know its cgroup's path
	KernelRefused Missing = "kernel refused" // refused by the kernel, or by a check of ours before the write
	LeftAlone     Missing = "left alone"     // another program keeps writing it, and the agent gave up
	Differs       Missing = "differs"        // mode observe: the node has another value
	NotCompared   Missing = "not compared"   // mode observe: no file of the node shows the value
)

// Reasons lists the kinds of reasons.
func Reasons() []Missing {
	return []Missing{NotYet, NoCgroup, NotCarried, Ceded, CreateOnly, BadCgroup, KernelRefused, LeftAlone, Differs, NotCompared}
}

// Summary is the state of the node in numbers, for metrics. Its texts come from bounded sets.
type Summary struct {
	Attached      bool
	Connections   []Connection
	Classes       map[string]int // live containers, by class
	Unapplied     map[Missing]int
	Specs         map[lifecycle.Source]int // pods that have not ended, by the source of their spec
	Pools         []PoolSize
	PoolMembers   map[string]int    // live containers, by pool
	Exclusive     int               // CPUs
	WithoutCgroup int               // containers that run and have no cgroup in this tree
	Kernel        map[string]uint64 // values written to the kernel, by result
	Drift         map[string]uint64 // values repaired after another program changed them, by setting
	Ceded         map[string]int    // values that the agent left to programs that keep writing them, by setting
	Contested     map[string]int    // values that other programs keep changing and that the agent keeps repairing, by setting
	LastSync      time.Time         // zero for none
	ConfigGen     uint64
	ConfigError   bool
	// Observed is the last comparison in mode observe; nil in mode enforce.
	Observed *Observed
	// HookServers are the hook servers by the name of their file. The value is true if the file is in force and the
	// agent calls the server.
	HookServers map[string]bool
	// ResourcePlugins are the plugins by resource. The value is true if the plugin answers. PendingRemovals counts
	// the pods that each plugin must still release.
	ResourcePlugins map[string]bool
	PendingRemovals map[string]int
	// NRIPlugins are the plugins of the NRI host. The value is true if the plugin is connected.
	NRIPlugins map[string]bool
	// Cluster is the state of the API server's services; nil without cluster.enabled.
	Cluster *Cluster
}

// Connection is an attachment, its state, and all states that it can have.
type Connection struct {
	Mode   string
	State  string
	States []string
	Live   bool // registered and synchronised
}

// PoolSize is how many CPUs of a NUMA node are in a pool.
type PoolSize struct {
	Pool string
	Node int
	CPUs int
}

// Event is one line of `trimtab events`.
type Event struct {
	Seq       uint64              `json:"seq"`
	Op        string              `json:"op,omitempty"` // as in the log
	Time      time.Time           `json:"time"`
	Kind      string              `json:"kind"`
	From      string              `json:"from"`
	Pod       string              `json:"pod,omitempty"`
	PodUID    string              `json:"-"` // for reports that leave the node
	Container string              `json:"container,omitempty"`
	Took      time.Duration       `json:"tookNanoseconds"`
	Values    []Value             `json:"values,omitempty"`
	Changed   []string            `json:"changed,omitempty"` // what others lost or got
	Problems  []lifecycle.Problem `json:"problems,omitempty"`
	Rejected  string              `json:"rejected,omitempty"`
	Unaligned bool                `json:"-"` // the topology manager rejected it
	// Again means that the creation was decided before, through another attachment. The agent recognised it by its
	// record, and the earlier decision stays in force.
	Again bool `json:"again,omitempty"`
}
