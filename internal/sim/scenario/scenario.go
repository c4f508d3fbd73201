// Package scenario defines the format of scenarios: a node, a configuration, steps, and the effective state that is
// wanted after each step. It only loads the data. The embedded runtime and the tests on real runtimes play the same
// files.
package scenario

import (
	"encoding/json"
	"slices"

	"github.com/trimtab/trimtab/internal/sim/kernel"
)

// Scenario is one file.
type Scenario struct {
	Name  string `json:"name"`  // how reports call it
	About string `json:"about"` // one sentence
	Node  Node   `json:"node"`  // the machine
	// Config is the agent's configuration document without apiVersion and kind. Keys that it leaves out have their
	// defaults.
	Config json.RawMessage `json:"config,omitempty"`
	// Steps are what happens, one after another.
	Steps []Step `json:"steps"`
}

// Node is the machine of a scenario.
type Node struct {
	// CPUs describe the processors, such as "2s x 2n x 8c x 2t, 64GiB/node": sockets (s), dies of a socket (d), NUMA nodes
	// (n), L3 caches (l), cores (c) and threads of a core (t), and the memory of each NUMA node. What is left out is 1.
	// Huge pages that each node has reserved come last: ", 16 x 1GiB pages/node"; without them it has none.
	CPUs string `json:"cpus,omitempty"`
	// Captured is a file of `trimtab capture`, whose machine this is, instead of CPUs. A relative path begins at the
	// scenario's directory.
	Captured string `json:"captured,omitempty"`
	// Isolated are the CPUs that the kernel's scheduler does not use, as a kernel list.
	Isolated string `json:"isolated,omitempty"`
	// Efficient are the CPUs of efficient cores, as a kernel list. If it is set, all other CPUs are of performance
	// cores.
	Efficient string `json:"efficient,omitempty"`
	// FarMemory has the sizes of NUMA nodes that have memory and no CPUs, such as "8Gi": HBM if it is smaller than
	// node 0, otherwise CXL. Their numbers follow those of the nodes with CPUs.
	FarMemory []string `json:"farMemory,omitempty"`
	// Distances has a row for each NUMA node with its distances to all nodes.
	Distances [][]int `json:"distances,omitempty"`
	// Cards has the NUMA nodes of devices by PCI address.
	Cards  map[string]int `json:"cards,omitempty"`
	Cgroup string         `json:"cgroup,omitempty"` // v2 (default) or v1
	Driver string         `json:"driver,omitempty"` // cgroupfs (default) or systemd
	// Kernel names cgroup files of the node's kernel that mainline kernels lack.
	Kernel []string `json:"kernel,omitempty"`
	// Devices has the node's device nodes, "major:minor" by path.
	Devices map[string]string `json:"devices,omitempty"`
	// Verbs has the RDMA verbs devices by PCI address.
	Verbs map[string]string `json:"verbs,omitempty"`
	// HugePages are the node's sizes of huge pages, out of 2MB and 1GB.
	HugePages []string `json:"hugePages,omitempty"`
	// CDI has the names of devices that the runtime can inject by the Container Device Interface. The runtime refuses a
	// container with another name.
	CDI []string `json:"cdi,omitempty"`
	// Disks has the numbers of disks by name.
	Disks map[string]string `json:"disks,omitempty"`
	// Interfaces are the host's network interfaces that may move into pods. If left out, the agent does not know which
	// interfaces the host has.
	Interfaces []string `json:"interfaces,omitempty"`
	// HookFiles are the texts of files of OCI hooks by path.
	HookFiles map[string]string `json:"hookFiles,omitempty"`
	// Resctrl has the resources that the processors can divide; without it none.
	Resctrl *kernel.ResctrlHardware `json:"resctrl,omitempty"`
	// CoreSched is set if the kernel supports core scheduling.
	CoreSched bool `json:"coreSched,omitempty"`
}

// Special reports whether the node describes processors, cards or memory that other machines do not have.
func (n *Node) Special() bool {
	return n.Captured != "" || n.Isolated != "" || n.Efficient != "" || len(n.Cards) > 0 || len(n.FarMemory) > 0 || len(n.Distances) > 0
}

// NeedsKubelet reports whether a kubelet must report pod specs or grants for the scenario.
func (s *Scenario) NeedsKubelet() bool {
	return slices.ContainsFunc(s.Steps, func(step Step) bool {
		return slices.ContainsFunc(step.Run, func(r Run) bool { return len(r.Pod.Spec) > 0 || r.Pod.PodResources != nil })
	})
}

// HasGrants reports whether the scenario's kubelet reports grants of its static managers.
func (s *Scenario) HasGrants() bool {
	return slices.ContainsFunc(s.Steps, func(step Step) bool {
		return slices.ContainsFunc(step.Run, func(r Run) bool { return r.Pod.PodResources != nil })
	})
}

// initMemory is more than the memory that runc's init needs in a container before the first instruction. With runc
// 1.5.2 8 MiB are too little on cgroup v1.
const initMemory = 16 << 20

// LimitsBelowInit reports whether the scenario sets a memory limit in which no real runtime can start a container.
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

// Step is one action with the wants after it. At most one of Run, Create, Start, Update, Stop, Remove, Kubelet,
// Annotate, Restart and Reconfigure is set; a step with none only checks its wants.
type Step struct {
	Name string `json:"name"` // how reports call it
	// Run starts pods one after another: it runs the sandbox, then creates and starts each container.
	Run []Run `json:"run,omitempty"`
	// Create adds a container to a pod that runs, without starting it; Start
	// starts such a container.
	Create *Create `json:"createContainer,omitempty"`
	Start  Ref     `json:"startContainer,omitempty"`
	// Update is the kubelet's UpdateContainerResources.
	Update *Update `json:"update,omitempty"`
	// Stop has pods or containers to stop.
	Stop []Ref `json:"stop,omitempty"`
	// Remove has pods or containers to remove; those that run are stopped first.
	Remove []Ref `json:"remove,omitempty"`
	// Kubelet is "away" or "back": whether the kubelet reports pod specs and grants. It does at the start.
	Kubelet string `json:"kubelet,omitempty"`
	// Annotate changes a running pod in Kubernetes. The kubelet reports the change; the runtime keeps the pod's first
	// labels and annotations.
	Annotate *Annotate `json:"annotate,omitempty"`
	// Restart is "agent" or "runtime". It must change no running container.
	Restart string `json:"restart,omitempty"`
	// Reconfigure is a whole new configuration document, as Config is.
	Reconfigure json.RawMessage `json:"reconfigure,omitempty"`
	// Rejected is a text in the error with which the step must fail.
	Rejected string `json:"wantRejected,omitempty"`
	// Want has the wants for each container, or, for namespace/pod alone, for the pod's own cgroup.
	Want map[Ref]Want `json:"want,omitempty"`
}

// Started lists the containers whose first instruction runs after all other actions of a step: those of the last pod.
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
	// Pod is what the kubelet requests for the pod, in the units of the runtime.
	Pod Pod `json:"pod,omitzero"`
	// Containers are what the kubelet requests for the pod's containers.
	Containers []Container `json:"containers,omitempty"`
	// Manifest is a Pod as users write it, instead of pod and containers: requests and limits are converted as the
	// kubelet converts them, and the kubelet reports the spec.
	Manifest json.RawMessage `json:"manifest,omitempty"`
}

// Pod is a pod as the kubelet requests it from the runtime.
type Pod struct {
	Namespace   string            `json:"namespace"`                // of the pod
	Name        string            `json:"name"`                     // of the pod
	UID         string            `json:"uid,omitempty"`            // made from the name if left out
	QoS         string            `json:"qos"`                      // Guaranteed, Burstable or BestEffort
	Labels      map[string]string `json:"labels,omitempty"`         // of the pod
	Annotations map[string]string `json:"annotations,omitempty"`    // of the pod
	Handler     string            `json:"runtimeHandler,omitempty"` // of the pod's runtime class
	// Resources are what the kubelet sets on the pod's cgroup. If left out, they are the sums over the containers, as the
	// kubelet computes them.
	Resources *Resources `json:"resources,omitempty"`
	// Spec is the pod's spec as the kubelet reports it at /pods, with the fields of v1.PodSpec. If left out, the kubelet
	// does not report the pod.
	Spec json.RawMessage `json:"spec,omitempty"`
	// PodResources has the grants of the kubelet's static managers to the pod's containers, by name, as the PodResources
	// API reports them. If left out, the kubelet does not report the pod.
	PodResources map[string]Static `json:"podResources,omitempty"`
}

// Static has the exclusive CPUs of a container and the memory nodes to which it is bound, as lists.
type Static struct {
	CPUs string `json:"cpus,omitempty"` // exclusive CPUs
	Mems string `json:"mems,omitempty"` // memory nodes
}

// Container is a container as the kubelet requests it.
type Container struct {
	Name        string            `json:"name"`                  // of the container
	Labels      map[string]string `json:"labels,omitempty"`      // of the container
	Annotations map[string]string `json:"annotations,omitempty"` // of the container
	Args        []string          `json:"args,omitempty"`        // what it runs
	Env         map[string]string `json:"env,omitempty"`         // its environment variables
	Resources   Resources         `json:"resources,omitzero"`    // what it requests
}

// Resources are the requested resources in the units of the runtime. Quota is in µs per period and memory in bytes; -1
// is unlimited.
type Resources struct {
	Shares *uint64 `json:"shares,omitempty"` // cpu.shares, 1024 for a CPU
	Quota  *int64  `json:"quota,omitempty"`  // CPU time in µs per period; -1 is unlimited
	Period *uint64 `json:"period,omitempty"` // in µs, 100000 if left out
	Memory *int64  `json:"memory,omitempty"` // limit in bytes; -1 is unlimited
	CPUs   string  `json:"cpus,omitempty"`   // list of CPUs
	Mems   string  `json:"mems,omitempty"`   // list of memory nodes
	// HugePages has limits in bytes by size, such as 2MB.
	HugePages map[string]uint64 `json:"hugePages,omitempty"`
}

// Create adds a container to a pod.
type Create struct {
	Pod       Ref       `json:"pod"`       // namespace/name of a pod that runs
	Container Container `json:"container"` // the new container
}

// Annotate replaces all labels and annotations of a pod that has a Spec, and its spec if Spec is set here.
type Annotate struct {
	Pod         Ref               `json:"pod"`                   // namespace/name
	Labels      map[string]string `json:"labels,omitempty"`      // all labels from now on
	Annotations map[string]string `json:"annotations,omitempty"` // all annotations from now on
	Spec        json.RawMessage   `json:"spec,omitempty"`        // the spec from now on, if it changes
}

// Update is a request for new resources of a container.
type Update struct {
	Container Ref       `json:"container"` // namespace/pod/container
	Resources Resources `json:"resources"` // the resources from now on
	// Pod has the kubelet's writes to the pod's cgroup before the update, if the pod grows; PodAfter those after it, if
	// the pod shrinks.
	Pod      *Resources `json:"pod,omitempty"`
	PodAfter *Resources `json:"podAfter,omitempty"`
	// PodResources has the container's grants from now on, if the resize changed them.
	PodResources *Static `json:"podResources,omitempty"`
}

// Around calls update. Before and after that it calls write with the kubelet's writes to the pod's cgroup.
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

// Want is the wanted effective state. Only fields that are set are compared.
type Want struct {
	// From is the source of the numbers: the row of a table, or a rule.
	From string `json:"from,omitempty"`
	// State is created, running or stopped.
	State string `json:"state,omitempty"`
	// CPUs is a list, which is compared as a set with the effective CPUs.
	CPUs *string `json:"cpus,omitempty"`
	// Mems is a list, which is compared as a set with the effective memory nodes.
	Mems *string `json:"mems,omitempty"`
	// Shares are compared exactly in cgroup v1. In v2 they are first converted to a weight by a fixed table.
	Shares *uint64 `json:"shares,omitempty"`
	Quota  *int64  `json:"quota,omitempty"`  // in µs; -1 is unlimited
	Memory *int64  `json:"memory,omitempty"` // limit in bytes; -1 is unlimited
	// OOMScoreAdj is the oom_score_adj of the container's spec.
	OOMScoreAdj *int `json:"oomScoreAdj,omitempty"`
	// Process is what the first process starts with, and parameters and network devices of its namespaces, as
	// "rlimit RLIMIT_NOFILE": "1024:4096". The value "" means that it must not have the entry.
	Process map[string]string `json:"process,omitempty"`
	// Env has variables of the container.
	Env map[string]string `json:"env,omitempty"`
	// Absent names variables that the container must not have.
	Absent []string `json:"absentEnv,omitempty"`
	// Mounts are sources by destination.
	Mounts map[string]string `json:"mounts,omitempty"`
	// Devices are device nodes of the container.
	Devices []string `json:"devices,omitempty"`
	// CDI has the names of the container's CDI devices.
	CDI []string `json:"cdi,omitempty"`
	// NoDevices is whether the container must have neither device nodes nor CDI devices.
	NoDevices bool `json:"noDevices,omitempty"`
	// BlockIOClass is the class of its creation, "" for none.
	BlockIOClass *string `json:"blockIOClass,omitempty"`
	// Cookie is the core scheduling cookie of all its threads, 0 for none. Cookies are numbered in the order of their
	// creation.
	Cookie *uint64 `json:"cookie,omitempty"`
	// RDTClass is the RDT class of its creation.
	RDTClass *string `json:"rdtClass,omitempty"`
	// RDTGroup is the resctrl group of all its threads, "" for the root, with the monitoring group after a slash if it
	// has one.
	RDTGroup *string `json:"rdtGroup,omitempty"`
	// Schemata are lines of the resctrl group rdtGroup.
	Schemata []string `json:"schemata,omitempty"`
	// NoGroups names resctrl groups that must not exist.
	NoGroups []string `json:"noGroups,omitempty"`
	// IOLimits has the effective limits of reads and writes, by disk and direction such as "8:0 rbps"; -1 is no limit.
	IOLimits map[string]int64 `json:"ioLimits,omitempty"`
	// Files has the texts of cgroup files by their name in version 2.
	Files map[string]string `json:"files,omitempty"`
	// Exclusive is set if no other container may have one of the container's CPUs, now or at its first instruction.
	Exclusive bool `json:"exclusive,omitempty"`
	// Class is the class that the agent reports: system, dedicated, shared, reclaimed or none.
	Class string `json:"class,omitempty"`
	// Problems are parts of the problems that the agent reports for the container. An empty list means that there are
	// none.
	Problems *[]string `json:"problems,omitempty"`
}
