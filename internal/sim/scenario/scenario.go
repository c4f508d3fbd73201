// Package scenario defines and parses the format of scenarios: a node, a configuration, steps, and the wanted effective
// state after each step. The same files run on the simulated runtime of package sim and, in tests, on real runtimes.
package scenario

import (
	"encoding/json"
	"slices"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sim/kernel"
)

// Scenario is the content of a scenario file.
type Scenario struct {
	Name  string `json:"name"`  // the name in reports
	About string `json:"about"` // a description in one sentence
	Node  Node   `json:"node"`  // the machine
	// Config is the agent's configuration document without apiVersion and kind. Missing keys have their defaults.
	Config json.RawMessage `json:"config,omitempty"`
	// Steps are the actions, in order, each with the wanted state after it.
	Steps []Step `json:"steps"`
}

// Node is the machine of a scenario.
type Node struct {
	// CPUs describe the processors, such as "2s x 2n x 8c x 2t, 64GiB/node": sockets (s), dies of a socket (d), NUMA
	// nodes (n), L3 caches (l), cores (c) and threads of a core (t), and the memory of each NUMA node. A missing level
	// counts as 1. The reserved huge pages of each node come last, such as ", 16 x 1GiB pages/node".
	CPUs string `json:"cpus,omitempty"`
	// Present is the list of the described processors that exist; empty for all. If present is set, cpus may describe
	// up to 4096 processors.
	Present string `json:"present,omitempty"`
	// WithoutNUMA is set if the kernel is built without NUMA support. Such a kernel shows no NUMA nodes.
	WithoutNUMA bool `json:"withoutNUMA,omitempty"`
	// Captured is a file that `trimtab capture` wrote. It describes the machine, in place of the text for the
	// processors. A relative path is relative to the scenario's directory.
	Captured string `json:"captured,omitempty"`
	// Isolated are the CPUs that the kernel's scheduler leaves out of load balancing (isolcpus), as a kernel list.
	Isolated string `json:"isolated,omitempty"`
	// Efficient are the CPUs of efficiency cores, as a kernel list. If the list is not empty, all other CPUs belong to
	// performance cores.
	Efficient string `json:"efficient,omitempty"`
	// FarMemory has the memory sizes of NUMA nodes without CPUs, such as "8Gi". Such a node has HBM if it has less
	// memory than node 0; otherwise it has CXL memory. The ids of these nodes follow the ids of the nodes with CPUs.
	FarMemory []string `json:"farMemory,omitempty"`
	// Distances has a row for each NUMA node, with the distances of this node to all NUMA nodes.
	Distances [][]int `json:"distances,omitempty"`
	// Cards has the NUMA nodes of PCI devices, by PCI address.
	Cards  map[string]int `json:"cards,omitempty"`
	Cgroup string         `json:"cgroup,omitempty"` // v2 (default) or v1
	Driver string         `json:"driver,omitempty"` // cgroupfs (default) or systemd
	// Kernel lists cgroup files that the node's kernel has, but mainline kernels do not have.
	Kernel []string `json:"kernel,omitempty"`
	// Devices has the numbers of the node's device nodes as "major:minor", by path.
	Devices map[string]string `json:"devices,omitempty"`
	// Verbs has the names of the RDMA verbs devices by PCI address.
	Verbs map[string]string `json:"verbs,omitempty"`
	// HugePages are the huge page sizes that the kernel supports: 2MB, 1GB or both.
	HugePages []string `json:"hugePages,omitempty"`
	// CDI has the qualified names of the devices that the runtime can inject by the Container Device Interface. The
	// runtime refuses a container that requests another device.
	CDI []string `json:"cdi,omitempty"`
	// Disks has the device numbers of disks by name.
	Disks map[string]string `json:"disks,omitempty"`
	// Interfaces are the host's network interfaces that can be moved into pods. If left out, the agent does not know
	// the host's interfaces.
	Interfaces []string `json:"interfaces,omitempty"`
	// HookFiles has the texts of OCI hook files by path.
	HookFiles map[string]string `json:"hookFiles,omitempty"`
	// Resctrl has the resources that resctrl can divide. If left out, the processors do not support resctrl.
	Resctrl *kernel.ResctrlHardware `json:"resctrl,omitempty"`
	// CPUFreq has the frequencies and idle states of the processors. If left out, the kernel shows no cpufreq and
	// cpuidle files.
	CPUFreq *kernel.CPUHardware `json:"cpuFreq,omitempty"`
	// Tiers is set if the kernel sorts the node's kinds of memory into memory tiers, as Linux 6.16 does.
	Tiers *kernel.Tiers `json:"tiers,omitempty"`
	// CoreSched is set if the kernel supports core scheduling.
	CoreSched bool `json:"coreSched,omitempty"`
}

// NodeDevices returns the devices in the node's CDI specifications. These devices have no device nodes. If the name of
// a device contains a PCI address, the address determines the device's NUMA node.
func (n *Node) NodeDevices() (out []lifecycle.NodeDevice) {
	for _, name := range slices.Sorted(slices.Values(n.CDI)) {
		out = append(out, lifecycle.NodeDevice{Name: name})
	}
	return out
}

// HasSpecialProperties reports whether the node has properties that the text in the field CPUs cannot describe.
func (n *Node) HasSpecialProperties() bool {
	return n.Captured != "" || n.Present != "" || n.WithoutNUMA || n.Isolated != "" || n.Efficient != "" || len(n.Cards) > 0 || len(n.FarMemory) > 0 || n.Tiers != nil || len(n.Distances) > 0
}

// NeedsKubelet reports whether the scenario needs a kubelet that reports pod specs, or reports which CPUs, memory nodes
// and devices its managers granted to containers.
func (s *Scenario) NeedsKubelet() bool {
	return slices.ContainsFunc(s.Steps, func(step Step) bool {
		return slices.ContainsFunc(step.Run, func(r Run) bool { return len(r.Pod.Spec) > 0 || r.Pod.PodResources != nil })
	})
}

// HasGrants reports whether the scenario's kubelet reports grants: which CPUs, memory nodes and devices its managers
// granted to containers.
func (s *Scenario) HasGrants() bool {
	return slices.ContainsFunc(s.Steps, func(step Step) bool {
		return slices.ContainsFunc(step.Run, func(r Run) bool { return r.Pod.PodResources != nil })
	})
}

// initMemory is a memory limit, in bytes, with which runc can start a container. On cgroup v1, runc 1.5.2 needs more
// than 8 MiB.
const initMemory = 16 << 20

// LimitsBelowInit reports whether the scenario wants a memory limit below initMemory. With such a limit, runc possibly
// cannot start the container.
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

// Step is one action, with the wanted values ("wants") after it. At most one of Run, Create, Start, Update, Stop,
// Remove, Kubelet, Annotate, Restart and Reconfigure is set. A step without an action only checks the wants.
type Step struct {
	Name string `json:"name"` // the name in reports
	// Run starts pods, one after another. For each pod, the step runs the sandbox, and then creates and starts each
	// container.
	Run []Run `json:"run,omitempty"`
	// Create creates a container in a running pod, and does not start it.
	Create *Create `json:"createContainer,omitempty"`
	// Start starts a container that createContainer created.
	Start Ref `json:"startContainer,omitempty"`
	// Update is the kubelet's call UpdateContainerResources, which changes the resources of a container.
	Update *Update `json:"update,omitempty"`
	// Stop lists the pods and containers to stop.
	Stop []Ref `json:"stop,omitempty"`
	// Remove lists the pods and containers to remove. The step stops running pods and containers first.
	Remove []Ref `json:"remove,omitempty"`
	// Kubelet is "away" if the kubelet no longer reports pod specs and the resources that it granted to containers. It
	// is "back" if the kubelet reports them again.
	Kubelet string `json:"kubelet,omitempty"`
	// Claims are the resource claims that are prepared from this step on. They are prepared before the step's action.
	Claims *[]Claim `json:"claims,omitempty"`
	// Annotate changes a running pod in Kubernetes. The kubelet reports the change; the runtime keeps the pod's first
	// labels and annotations.
	Annotate *Annotate `json:"annotate,omitempty"`
	// Restart is "agent" to restart the agent, or "runtime" to restart the runtime. The restart must change no running
	// container.
	Restart string `json:"restart,omitempty"`
	// Reconfigure is a new configuration document, without apiVersion and kind. It replaces the whole configuration.
	Reconfigure json.RawMessage `json:"reconfigure,omitempty"`
	// Rejected is a text that the error of the action must contain. If it is set, the action must fail.
	Rejected string `json:"wantRejected,omitempty"`
	// WantCPUs has the wanted texts of files below /sys/devices/system/cpu/cpuN. The first key is a list of the CPUs N,
	// and the second key is the path of the file below that directory.
	WantCPUs map[string]map[string]string `json:"wantCPUs,omitempty"`
	// Want has the wanted state of containers (by namespace/pod/container) and of the cgroups of pods (by
	// namespace/pod).
	Want map[Ref]Want `json:"want,omitempty"`
	// Balloons are the wanted balloons. A balloon is a set of CPUs for some containers.
	Balloons *Balloons `json:"wantBalloons,omitempty"`
}

// Started lists the containers that a step starts after all its other actions: the container of Start, or the
// containers of the last pod of Run.
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
	// Pod is what the kubelet requests from the runtime for the pod, in the runtime's units.
	Pod Pod `json:"pod,omitzero"`
	// Containers are what the kubelet requests from the runtime for the pod's containers.
	Containers []Container `json:"containers,omitempty"`
	// Manifest is the Kubernetes manifest of a pod, in place of pod and containers. The requests and limits in the
	// manifest are converted in the same way as the kubelet converts them. The kubelet reports the pod's spec.
	Manifest json.RawMessage `json:"manifest,omitempty"`
}

// Pod has the data of a pod: the data that the kubelet sends to the runtime, and the data that the kubelet reports by
// its own APIs.
type Pod struct {
	Namespace   string            `json:"namespace"`                // the pod's namespace
	Name        string            `json:"name"`                     // the pod's name
	UID         string            `json:"uid,omitempty"`            // the pod's unique id; made from the name if left out
	QoS         string            `json:"qos"`                      // the quality of service: Guaranteed, Burstable or BestEffort
	Labels      map[string]string `json:"labels,omitempty"`         // the pod's labels
	Annotations map[string]string `json:"annotations,omitempty"`    // the pod's annotations
	Handler     string            `json:"runtimeHandler,omitempty"` // the handler of the pod's runtime class
	// Resources are the resources of the pod's cgroup. If left out, the cgroup has the sums of the containers'
	// resources.
	Resources *Resources `json:"resources,omitempty"`
	// Spec is the pod's spec that the kubelet reports at /pods, with the fields of v1.PodSpec. If left out, the kubelet
	// does not report the pod at /pods.
	Spec json.RawMessage `json:"spec,omitempty"`
	// PodResources has the grants of the kubelet's CPU, memory and device managers, by container name. The kubelet
	// reports these grants by its API for pod resources. If left out, this API does not report the pod.
	PodResources map[string]Static `json:"podResources,omitempty"`
}

// Static has the CPUs, memory nodes and devices that the kubelet's static managers grant to a container.
type Static struct {
	CPUs string `json:"cpus,omitempty"` // the exclusive CPUs, as a list
	Mems string `json:"mems,omitempty"` // the memory nodes to which the container is bound, as a list
	// Devices has the devices of the container, one for each resource name. The value is the list of the NUMA nodes of
	// the device, or "" if the device plugin does not report NUMA nodes.
	Devices map[string]string `json:"devices,omitempty"`
}

// Container has the data of a container that the kubelet sends to the runtime.
type Container struct {
	Name        string            `json:"name"`                  // the container's name
	Labels      map[string]string `json:"labels,omitempty"`      // the container's labels
	Annotations map[string]string `json:"annotations,omitempty"` // the container's annotations
	Args        []string          `json:"args,omitempty"`        // the command with its arguments
	Env         map[string]string `json:"env,omitempty"`         // the environment variables
	CDI         []string          `json:"cdi,omitempty"`         // the qualified names of the container's devices of the Container Device Interface
	Resources   Resources         `json:"resources,omitzero"`    // the requested resources
	// Uses is the anonymous memory that the container's processes use, in bytes by memory node. It requires node.tiers.
	Uses map[string]int64 `json:"uses,omitempty"`
}

// Resources are the requested resources in the units of the runtime. Quota is in µs per period and memory in bytes; -1
// is unlimited.
type Resources struct {
	Shares *uint64 `json:"shares,omitempty"` // CPU shares; 1024 for one CPU
	Quota  *int64  `json:"quota,omitempty"`  // CPU time in µs per period; -1 is unlimited
	Period *uint64 `json:"period,omitempty"` // in µs, 100000 if left out
	Memory *int64  `json:"memory,omitempty"` // the limit in bytes; -1 is unlimited
	CPUs   string  `json:"cpus,omitempty"`   // a list of CPUs
	Mems   string  `json:"mems,omitempty"`   // a list of memory nodes
	// HugePages has the limits of huge pages in bytes, by size such as 2MB.
	HugePages map[string]uint64 `json:"hugePages,omitempty"`
}

// Create adds a container to a pod.
type Create struct {
	Pod       Ref       `json:"pod"`       // namespace/name of a running pod
	Container Container `json:"container"` // the new container
}

// Annotate replaces all labels and annotations of a pod whose spec the kubelet reports. If the field Spec of Annotate
// is set, it also replaces the pod's spec.
type Annotate struct {
	Pod         Ref               `json:"pod"`                   // namespace/name
	Labels      map[string]string `json:"labels,omitempty"`      // all new labels
	Annotations map[string]string `json:"annotations,omitempty"` // all new annotations
	Spec        json.RawMessage   `json:"spec,omitempty"`        // the new spec; not changed if left out
}

// Update is a request for new resources of a container.
type Update struct {
	Container Ref       `json:"container"` // namespace/pod/container
	Resources Resources `json:"resources"` // the new resources
	// Pod are the resources that the kubelet writes to the pod's cgroup before the update, because the pod grows.
	Pod *Resources `json:"pod,omitempty"`
	// PodAfter are the resources that the kubelet writes to the pod's cgroup after the update, because the pod shrinks.
	PodAfter *Resources `json:"podAfter,omitempty"`
	// PodResources has the new grants of the container, if the resize changes them.
	PodResources *Static `json:"podResources,omitempty"`
}

// WithPodWrites calls update, which changes the resources of the container. The function write changes the resources of
// the pod's cgroup: WithPodWrites calls it with u.Pod before update, and with u.PodAfter after update. It does not call
// write for a field that is nil.
func (u *Update) WithPodWrites(write func(Ref, Resources) error, update func() error) error {
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

// Want is the wanted effective state of a container or of a pod's cgroup. Only fields that are set are compared.
type Want struct {
	// From names the rule or the row of a table from which the wanted values come. Messages contain this text.
	From string `json:"from,omitempty"`
	// State is created, running or stopped.
	State string `json:"state,omitempty"`
	// CPUs is the list of the effective CPUs, compared as a set.
	CPUs *string `json:"cpus,omitempty"`
	// Mems is the list of the effective memory nodes, compared as a set.
	Mems *string `json:"mems,omitempty"`
	// Shares are the CPU shares. With cgroup v2, a fixed formula converts the shares to a cpu.weight.
	Shares *uint64 `json:"shares,omitempty"`
	Quota  *int64  `json:"quota,omitempty"`  // in µs; -1 is unlimited
	Memory *int64  `json:"memory,omitempty"` // the limit in bytes; -1 is unlimited
	// OOMScoreAdj is the oom_score_adj of the container's spec.
	OOMScoreAdj *int `json:"oomScoreAdj,omitempty"`
	// Process has attributes of the first process, and parameters and network devices of its namespaces, such as
	// "rlimit RLIMIT_NOFILE": "1024:4096". The value "" means that the entry must not exist.
	Process map[string]string `json:"process,omitempty"`
	// Env has environment variables of the container.
	Env map[string]string `json:"env,omitempty"`
	// Absent lists environment variables that the container must not have.
	Absent []string `json:"absentEnv,omitempty"`
	// Mounts has the sources of mounts by destination.
	Mounts map[string]string `json:"mounts,omitempty"`
	// Devices are the paths of device nodes that the container must have. The container may have other device nodes.
	Devices []string `json:"devices,omitempty"`
	// CDI has the names of CDI devices that the container must have. The container may have others.
	CDI []string `json:"cdi,omitempty"`
	// NoDevices is set if the container must have neither device nodes nor CDI devices.
	NoDevices bool `json:"noDevices,omitempty"`
	// BlockIOClass is the block I/O class that the container got at its creation; "" for none.
	BlockIOClass *string `json:"blockIOClass,omitempty"`
	// Cookie is the core scheduling cookie of all threads of the container; 0 for none. Cookies are numbered in the
	// order in which they are created.
	Cookie *uint64 `json:"cookie,omitempty"`
	// RDTClass is the RDT class that the container got at its creation; "" for none.
	RDTClass *string `json:"rdtClass,omitempty"`
	// RDTGroup is the resctrl group of all threads of the container; "" for the root group. The name of a monitoring
	// group follows after a slash.
	RDTGroup *string `json:"rdtGroup,omitempty"`
	// Schemata are lines that the schemata file of the container's resctrl group must have.
	Schemata []string `json:"schemata,omitempty"`
	// NoGroups lists resctrl groups that must not exist.
	NoGroups []string `json:"noGroups,omitempty"`
	// IOLimits has the effective I/O limits by disk and direction, such as "8:0 rbps"; -1 is no limit.
	IOLimits map[string]int64 `json:"ioLimits,omitempty"`
	// Files has the texts of cgroup files, by the names of the files in cgroup v2. A file is not compared if the node's
	// cgroup version does not have it.
	Files map[string]string `json:"files,omitempty"`
	// OnNodes is the anonymous memory of the container's processes, in bytes by memory node. The kernel must not have
	// dropped or swapped pages. With cgroup v1 the memory is not compared.
	OnNodes map[string]int64 `json:"onNodes,omitempty"`
	// Exclusive is set if no other container may have one of this container's CPUs, neither after the step nor when the
	// first instruction of this container runs.
	Exclusive bool `json:"exclusive,omitempty"`
	// Class is the class that the agent reports: system, dedicated, shared, reclaimed or none.
	Class string `json:"class,omitempty"`
	// CPUClasses has one text for each line about CPU classes in the output of 'trimtab explain', in order. The line
	// must contain the text. An empty list means that there must be no such line.
	CPUClasses *[]string `json:"cpuClasses,omitempty"`
	// Problems has texts. For each text, the agent must report a problem of this container, and the problem must
	// contain the text. An empty list means that the agent must report no problem.
	Problems *[]string `json:"problems,omitempty"`
}
