// Package scenario is the format of scenarios: a node, a configuration, what
// happens to pods, and what is wanted of the effective state after each step.
// It is data and its loader only; the embedded runtime and the tests on real
// runtimes both play the same files.
package scenario

import (
	"encoding/json"
	"slices"

	"github.com/trimtab/trimtab/internal/sim/kernel"
)

// Scenario is one file.
type Scenario struct {
	Name  string `json:"name"`
	About string `json:"about"` // one sentence
	Node  Node   `json:"node"`
	// Config is the agent's configuration document without apiVersion and
	// kind; what it leaves out has its default.
	Config json.RawMessage `json:"config,omitempty"`
	Steps  []Step          `json:"steps"`
}

// Node is the machine the scenario happens on.
type Node struct {
	CPUs string `json:"cpus"` // in the notation of package topology/describe
	// Isolated are CPUs the kernel's scheduler leaves out, Efficient those of
	// efficient cores, as kernel lists; where some are, all others are of
	// performance cores.
	Isolated  string `json:"isolated,omitempty"`
	Efficient string `json:"efficient,omitempty"`
	// FarMemory are the sizes of NUMA nodes that have memory and no CPUs (CXL), such as
	// "8Gi"; they come after those with CPUs.
	FarMemory []string `json:"farMemory,omitempty"`
	// Distances are those of all NUMA nodes from each.
	Distances [][]int `json:"distances,omitempty"`
	// Cards are the NUMA nodes of devices by PCI address.
	Cards  map[string]int `json:"cards,omitempty"`
	Cgroup string         `json:"cgroup,omitempty"` // v2 (default) or v1
	Driver string         `json:"driver,omitempty"` // cgroupfs (default) or systemd
	// Kernel names cgroup files the node's kernel has beyond mainline's.
	Kernel []string `json:"kernel,omitempty"`
	// Devices are the node's device nodes, "major:minor" by path, and Verbs the
	// RDMA verbs devices by PCI address.
	Devices map[string]string `json:"devices,omitempty"`
	Verbs   map[string]string `json:"verbs,omitempty"`
	// HugePages are the sizes of huge pages the node has, of 2MB and 1GB.
	HugePages []string `json:"hugePages,omitempty"`
	// Disks are numbers of disks by name.
	Disks map[string]string `json:"disks,omitempty"`
	// Resctrl is what the processors share out; left out, nothing.
	Resctrl *kernel.ResctrlHardware `json:"resctrl,omitempty"`
	// CoreSched says that the kernel gives core scheduling cookies.
	CoreSched bool `json:"coreSched,omitempty"`
}

// Special reports whether the node's processors, cards or memory are described: other
// machines than the described one have others.
func (n *Node) Special() bool {
	return n.Isolated != "" || n.Efficient != "" || len(n.Cards) > 0 || len(n.FarMemory) > 0 || len(n.Distances) > 0
}

// NeedsKubelet reports whether a kubelet must tell pods' specs for it, or what it
// gave them.
func (s *Scenario) NeedsKubelet() bool {
	return slices.ContainsFunc(s.Steps, func(step Step) bool {
		return slices.ContainsFunc(step.Run, func(r Run) bool { return len(r.Pod.Spec) > 0 || r.Pod.PodResources != nil })
	})
}

// TellsStatic reports whether its kubelet reports what its static managers gave.
func (s *Scenario) TellsStatic() bool {
	return slices.ContainsFunc(s.Steps, func(step Step) bool {
		return slices.ContainsFunc(step.Run, func(r Run) bool { return r.Pod.PodResources != nil })
	})
}

// initMemory is more than what runc's own init needs of a container's memory before the
// container's first instruction. Seen with runc 1.5.2: 8 MiB do not do on cgroup v1.
const initMemory = 16 << 20

// LimitsBelowInit reports whether it wants a memory limit in which no real runtime
// starts a container.
func (s *Scenario) LimitsBelowInit() bool {
	return slices.ContainsFunc(s.Steps, func(step Step) bool {
		for _, w := range step.Want {
			if w.Memory != nil && *w.Memory >= 0 && *w.Memory < initMemory {
				return true
			}
		}
		return false
	})
}

// Step is one thing that happens, and what is wanted afterwards. At most one
// of Run, Create, Start, Update, Stop, Remove, Kubelet, Annotate, Restart and Reconfigure is set;
// a step with none only looks.
type Step struct {
	Name string `json:"name"`
	// Run starts pods one after another: the sandbox, then each container is
	// created and started.
	Run []Run `json:"run,omitempty"`
	// Create adds a container to a pod that runs, without starting it; Start
	// starts such a container.
	Create *Create `json:"createContainer,omitempty"`
	Start  Ref     `json:"startContainer,omitempty"`
	// Update is the kubelet's UpdateContainerResources.
	Update *Update `json:"update,omitempty"`
	// Stop and Remove take pods or containers. Removing stops what runs.
	Stop   []Ref `json:"stop,omitempty"`
	Remove []Ref `json:"remove,omitempty"`
	// Kubelet is "away" or "back": whether the kubelet reports pods' specs and what
	// it gave them. At the start it does.
	Kubelet string `json:"kubelet,omitempty"`
	// Annotate changes what Kubernetes has of a pod that lives: the kubelet reports
	// it, and the runtime keeps what it was told when the pod came.
	Annotate *Annotate `json:"annotate,omitempty"`
	// Restart is "agent" or "runtime". Nothing that lives may change by it.
	Restart string `json:"restart,omitempty"`
	// Reconfigure is a whole new configuration document, as Config is.
	Reconfigure json.RawMessage `json:"reconfigure,omitempty"`
	// Rejected wants the step to fail with an error that contains this text.
	Rejected string `json:"wantRejected,omitempty"`
	// Want is what is wanted of each container, or, for namespace/pod alone, of
	// the pod's own cgroup.
	Want map[Ref]Want `json:"want,omitempty"`
}

// Started lists the containers whose first instruction runs in a step after
// everything that could change what they see: those of the last pod.
func (s *Step) Started() []Ref {
	var refs []Ref
	if n := len(s.Run); n > 0 {
		last := s.Run[n-1]
		for _, c := range last.Containers {
			refs = append(refs, PodRef(last.Pod.Namespace, last.Pod.Name).In(c.Name))
		}
	}
	if s.Start != "" {
		refs = append(refs, s.Start)
	}
	return refs
}

// Run is one pod and its containers.
type Run struct {
	Pod        Pod         `json:"pod"`
	Containers []Container `json:"containers"`
}

// Pod is a pod as the kubelet hands it to the runtime.
type Pod struct {
	Namespace   string            `json:"namespace"`
	Name        string            `json:"name"`
	UID         string            `json:"uid,omitempty"` // made of the name where left out
	QoS         string            `json:"qos"`           // Guaranteed, Burstable or BestEffort
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Handler     string            `json:"runtimeHandler,omitempty"`
	// Resources are what the kubelet sets on the pod's cgroup; left out, they
	// are summed up from the containers as the kubelet does.
	Resources *Resources `json:"resources,omitempty"`
	// Spec is the pod's spec as the kubelet reports it at /pods, in Kubernetes'
	// own words; left out, the kubelet does not report the pod.
	Spec json.RawMessage `json:"spec,omitempty"`
	// PodResources is what the kubelet reports by its PodResources API that its static
	// managers gave the pod's containers, by name; left out, it does not report the
	// pod.
	PodResources map[string]Static `json:"podResources,omitempty"`
}

// Static are CPUs that a container has alone and memory nodes it was bound to, as
// lists.
type Static struct {
	CPUs string `json:"cpus,omitempty"`
	Mems string `json:"mems,omitempty"`
}

// Container is a container as the kubelet asks for it.
type Container struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Args        []string          `json:"args,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
	Resources   Resources         `json:"resources,omitzero"`
}

// Resources are the requested resources in the runtime's terms; absent fields
// are not set. Quota is in µs per period and memory in bytes; -1 is unlimited.
type Resources struct {
	Shares *uint64 `json:"shares,omitempty"`
	Quota  *int64  `json:"quota,omitempty"`
	Period *uint64 `json:"period,omitempty"`
	Memory *int64  `json:"memory,omitempty"`
	CPUs   string  `json:"cpus,omitempty"`
	Mems   string  `json:"mems,omitempty"`
	// HugePages are limits in bytes by size, as 2MB.
	HugePages map[string]uint64 `json:"hugePages,omitempty"`
}

// Create adds a container to a pod.
type Create struct {
	Pod       Ref       `json:"pod"`
	Container Container `json:"container"`
}

// Annotate gives a pod, of which the scenario says the spec, other labels and
// annotations in place of all it had, and another spec where that is said.
type Annotate struct {
	Pod         Ref               `json:"pod"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Spec        json.RawMessage   `json:"spec,omitempty"`
}

// Update asks for new resources of a container.
type Update struct {
	Container Ref       `json:"container"`
	Resources Resources `json:"resources"`
	// Pod is what the kubelet writes to the pod's cgroup first, where the pod is
	// to grow; PodAfter what it writes last, where the pod is to shrink.
	Pod      *Resources `json:"pod,omitempty"`
	PodAfter *Resources `json:"podAfter,omitempty"`
	// PodResources is what the kubelet reports of the container from now on, where
	// the resize changed that.
	PodResources *Static `json:"podResources,omitempty"`
}

// Around calls update. Before and after it, it calls write with the values that a kubelet
// writes to the pod's cgroup then.
func (u *Update) Around(write func(Ref, Resources) error, update func() error) error {
	pod := u.Container.Pod()
	if u.Pod != nil {
		if err := write(pod, *u.Pod); err != nil {
			return err
		}
	}
	if err := update(); err != nil || u.PodAfter == nil {
		return err
	}
	return write(pod, *u.PodAfter)
}

// Want is the effective state wanted. Only fields that are there are compared.
type Want struct {
	// From says where the numbers come from: the row of a table, a rule.
	From string `json:"from,omitempty"`
	// State is created, running or stopped.
	State string `json:"state,omitempty"`
	// CPUs and Mems are lists, compared as sets with the effective ones.
	CPUs *string `json:"cpus,omitempty"`
	Mems *string `json:"mems,omitempty"`
	// Shares are compared exactly in cgroup v1; in v2 the kernel keeps a weight
	// and the wanted shares are encoded by the fixed table first.
	Shares *uint64 `json:"shares,omitempty"`
	Quota  *int64  `json:"quota,omitempty"`  // -1 unlimited
	Memory *int64  `json:"memory,omitempty"` // -1 unlimited
	// OOMScoreAdj is the oom_score_adj of the container's spec.
	OOMScoreAdj *int `json:"oomScoreAdj,omitempty"`
	// Env are variables the container has; Absent names ones it has not.
	Env    map[string]string `json:"env,omitempty"`
	Absent []string          `json:"absentEnv,omitempty"`
	// Mounts are sources by destination.
	Mounts map[string]string `json:"mounts,omitempty"`
	// Devices are device nodes the container has, CDI the names of CDI devices
	// it was given; NoDevices wants none of either.
	Devices   []string `json:"devices,omitempty"`
	CDI       []string `json:"cdi,omitempty"`
	NoDevices bool     `json:"noDevices,omitempty"`
	// BlockIOClass is the class it was created with, "" for none.
	BlockIOClass *string `json:"blockIOClass,omitempty"`
	// RDTClass is the RDT class it was created with, RDTGroup the resctrl group
	// all its threads are in, "" for the root's, with a slash and the group that
	// measures them where one does. Schemata are lines of that group.
	// Cookie is the core scheduling cookie of all its threads, 0 for none; they
	// are numbered as they are made.
	Cookie   *uint64  `json:"cookie,omitempty"`
	RDTClass *string  `json:"rdtClass,omitempty"`
	RDTGroup *string  `json:"rdtGroup,omitempty"`
	Schemata []string `json:"schemata,omitempty"`
	// NoGroups names resctrl groups that are not there any more.
	NoGroups []string `json:"noGroups,omitempty"`
	// IOLimits are what may be read and written at most, by disk and direction
	// as "8:0 rbps"; -1 is no limit.
	IOLimits map[string]int64 `json:"ioLimits,omitempty"`
	// Files are texts of cgroup files by their name in version 2.
	Files map[string]string `json:"files,omitempty"`
	// Exclusive wants that no other container has one of the container's CPUs,
	// neither now nor at its first instruction.
	Exclusive bool `json:"exclusive,omitempty"`
	// Class is the class the agent names: system, dedicated, shared, reclaimed
	// or none.
	Class string `json:"class,omitempty"`
	// Problems are parts of sentences the agent reports on the container; an
	// empty list that is there wants none.
	Problems *[]string `json:"problems,omitempty"`
}
